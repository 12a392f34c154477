// EncodedDocuments: the documents of an engine with a document encoder (context/contexts/cepe.cc). It keeps keys and
// values of the decoder's cross-attention, in blocks of a separate pool. A document is cut into pieces, each of which
// is encoded alone. A piece is found again by its tokens, at any place.
//
//   documents   [ piece | piece | pie ] [ piece ]         tokens
//   blocks      [ 0 1 ] [ 2 3 ] [ 4 ]   [ 0 1 ]           a piece begins a block; equal pieces share theirs
//   a query     sees all slots of all its pieces, in this order
//
// A stream holds its pieces (DocumentLease) from before its first pass until it ends or is preempted. Pieces without a
// lease stay cached until their blocks are needed; the least recently used is evicted first. Engine thread only, except
// check().
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "context/document_context.h"
#include "kv/kv_formats.h"
#include "models/document_encoder/cross_layers.h"
#include "models/document_encoder/document_encoder.h"
#include "run/language_model.h"

namespace millrace {

class DocumentLease;

class EncodedDocuments final : public LayerBlock {
 public:
  // Loads the checkpoint of `choice` for streams of `target`, which outlives it, and charges all its memory to the
  // model's accounts: weights, the blocks for choice.tokens tokens, and the working memory of passes of up to
  // `batch_tokens` rows. `formats`: of the blocks. Errors: those of load() of DocumentEncoder and CrossLayers, user (an
  // option, the vocabulary), unsupported (the KV format), resource; messages begin with "context cepe: ".
  static Result<std::unique_ptr<EncodedDocuments>> load(const EncoderChoice& choice, const LanguageModel& target,
                                                        std::shared_ptr<ThreadPool> threads, const KvFormats& formats,
                                                        int64_t batch_tokens);
  ~EncodedDocuments() override;

  // Checks that hold() can succeed for these documents. Any thread. Errors: user (a token), resource.
  Result<void> check(const DocumentTokens& documents) const;
  // Pins the documents' pieces for `lease`, and encodes missing ones. `budget`: in and out, tokens that may still be
  // encoded in this step; reduced by the number encoded. At least one piece is encoded if the budget is above 0.
  // Returns false while pieces are missing; call it again.
  bool hold(const DocumentTokens& documents, std::shared_ptr<DocumentLease>& lease, int64_t& budget);

  // The rows of the next pass: begin_pass(), then add() for each stream with a complete lease, ascending; end_pass()
  // after it. Passes outside are those of streams without documents.
  void begin_pass();
  void add(const DocumentLease& lease, int64_t first_row, int64_t rows);
  void end_pass() { begin_pass(); }

  bool runs(int64_t layer) const override { return !runs_.empty() && layer >= cross_->first_layer(); }
  void run(int64_t layer, float* residual) override;
  void keep(std::span<const int32_t> rows) override;

  int64_t encoded_tokens() const { return encoded_tokens_; }  // so far; pieces that were found are not counted
  const KvPool& pool() const { return *pool_; }

 private:
  friend class DocumentLease;
  struct Piece {
    std::vector<BlockId> blocks;
    int64_t leases = 0;
    int64_t released = 0;  // when its last lease ended, counted in leases
    bool encoded = false;
  };
  using Pieces = std::map<std::vector<TokenId>, Piece>;
  struct Run {
    const DocumentLease* lease = nullptr;
    int32_t row = 0;  // row in the pass
  };

  EncodedDocuments() = default;
  Result<void> start(const LanguageModel& target, const KvFormats& formats, int64_t batch_tokens);
  std::vector<std::vector<TokenId>> cut(const DocumentTokens& documents) const;
  std::shared_ptr<DocumentLease> take(const DocumentTokens& documents);
  bool make_room(int64_t blocks);
  void drop(Pieces::iterator piece);
  void release(DocumentLease& lease);
  void encode(Pieces::value_type& piece);
  void gather();

  EncoderChoice choice_;
  std::shared_ptr<ThreadPool> threads_;
  std::vector<MemoryHold> memory_;
  std::unique_ptr<DocumentEncoder> encoder_;
  std::unique_ptr<CrossLayers> cross_;
  std::optional<KvPool> pool_;        // pool of the pieces
  std::optional<KvPool> scratch_kv_;  // pool of the encoder, one piece
  std::vector<BlockId> scratch_blocks_;
  std::optional<ForwardContext> encoding_, crossing_;
  AlignedBuffer keys_;  // keys of one layer and piece
  Batch encoder_batch_, batch_;
  std::vector<Run> runs_, kept_;  // rows of the pass that cross
  std::vector<int32_t> rows_;
  bool gathered_ = false;  // rows_ and batch_ are those of runs_
  Pieces pieces_;
  int64_t leases_ = 0;  // taken so far
  int64_t encoded_tokens_ = 0;
};

// Pieces that a stream holds. Ends before its owner does.
class DocumentLease {
 public:
  explicit DocumentLease(EncodedDocuments& owner) : owner_(owner) {}
  ~DocumentLease() { owner_.release(*this); }
  DocumentLease(const DocumentLease&) = delete;
  DocumentLease& operator=(const DocumentLease&) = delete;

  bool complete() const { return encoded_ == pieces_.size(); }

 private:
  friend class EncodedDocuments;
  EncodedDocuments& owner_;
  std::vector<EncodedDocuments::Pieces::iterator> pieces_;
  size_t encoded_ = 0;  // number of its first pieces that are encoded
  std::vector<BlockId> table_;
  std::vector<KeySegment> segments_;
};

}  // namespace millrace
