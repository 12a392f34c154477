// DocumentRows: parts of contexts in an engine whose KV cache a codec encodes. Keys that move need their rows, and so
// do tokens whose bits must not depend on where the part stands in the blocks of a prompt. So a part is computed as a
// stream of its own, in rows of F16; its rows are kept here, found by the tokens of that stream, and become the keys
// and values of every prompt that has the part: moved, and encoded once, as if a pass had computed them there.
//
//   own streams, F16     [ <s> document A ]  [ <s> document B ]        blocks in a prefix index
//                               |                   |                  keys move to their positions
//   a prompt, encoded    [ <s> | document B | document A | question ]  tiles, and the tail of its newest tokens
//
// A stream holds the rows of one part at a time (RowsLease), all of its blocks or none, so that two of them never wait
// for each other. Rows without a lease stay until their blocks are needed. Engine thread only, but for check().
#pragma once

#include <memory>
#include <vector>

#include "kv/prefix_index.h"
#include "models/model_runner.h"
#include "run/language_model.h"
#include "run/live_stream.h"

namespace millrace {

class DocumentRows {
 public:
  // For `tokens` tokens of all parts, in passes as `limits` says. Charges the rows to the account "documents", and the
  // memory of a pass to "activations" and "logits". `model` outlives it. Errors: user (the layout), resource.
  static Result<std::unique_ptr<DocumentRows>> create(const LanguageModel& model, std::shared_ptr<ThreadPool> threads,
                                                      ForwardLimits limits, int64_t tokens);

  // Whether the plan's parts fit, in streams of KV format `format`. Any thread. Errors: unsupported, resource.
  Result<void> check(const ContextPlan& plan, const std::string& format) const;
  // Executor::hold_part() and put_part(). `target`: of the streams.
  bool hold(LiveStream& stream, const ContextPart& part, int64_t& budget);
  int64_t put(LiveStream& stream, const ContextPart& part, int64_t count, ModelRunner& target);

  ModelRunner& runner() { return *runner_; }
  // free + held == total, and every block is referenced once by the index and each lease that hold it. Errors:
  // internal.
  Result<void> check_blocks() const;

 private:
  friend class RowsLease;
  DocumentRows() = default;
  std::shared_ptr<RowsLease> take(const LiveStream& stream, const ContextPart& part);
  void compute(RowsLease& lease, const LoraMix* mix, int64_t count);
  void keep(const RowsLease& lease);

  std::vector<MemoryHold> memory_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<PrefixIndex> index_;  // over its pool
  int64_t leased_ = 0;                  // blocks of all leases
};

// The rows of a part that a stream holds. Ends before its owner does.
class RowsLease {
 public:
  RowsLease(DocumentRows& owner, const LiveStream& stream, const ContextPart& part);
  ~RowsLease();
  RowsLease(const RowsLease&) = delete;
  RowsLease& operator=(const RowsLease&) = delete;

 private:
  friend class DocumentRows;
  bool add(Result<BlockId> block);
  bool complete() const { return computed_ == count_; }

  DocumentRows& owner_;
  int64_t begin_;                // of the part
  std::vector<TokenId> tokens_;  // of its own stream, in whole blocks
  int64_t count_;                // without those that fill the last block
  uint64_t scope_;
  bool shares_;
  double keep_seconds_;
  std::vector<BlockId> blocks_;  // for all of them
  int64_t found_ = 0;            // tokens that were there already
  int64_t computed_ = 0;         // those, and what was computed since
};

}  // namespace millrace
