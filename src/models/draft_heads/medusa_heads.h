// Medusa's heads (Cai et al., 2024, Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads).
// Each guesses a later token from the model's final hidden state h of a token, after the last norm: head i, from 0 on,
// the token i + 2 places behind it. A head is residual blocks and a matrix to the vocabulary:
//
//   h = h + silu(W h + b), as often as there are blocks;    logits = V h
//
// Files: config.json; tensors I.J.linear.weight [width, width] and I.J.linear.bias of block J of head I, and
// I.BLOCKS.weight [vocab, width]; all of them with or without "medusa_head." in front.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/draft_heads/draft_files.h"
#include "models/model.h"

namespace millrace {

class MedusaHeads {
 public:
  // Errors: corrupt (a tensor), user (made for a model of another width or vocabulary), resource.
  static Result<std::unique_ptr<MedusaHeads>> load(const std::string& path, const ArchSpec& target,
                                                   const KernelTable& table, ThreadPool& pool,
                                                   std::shared_ptr<MemoryAccounts> accounts = nullptr);

  int64_t heads() const { return std::ssize(heads_); }
  int64_t width() const { return width_; }
  int64_t vocab() const { return vocab_; }
  int64_t bytes() const { return weights_.bytes(); }
  std::string identity() const { return draft_identity(*files_); }

  // Bytes of scratch for `rows` rows.
  int64_t scratch_bytes(int64_t rows) const;
  // logits [rows, vocab] of one head for hidden [rows, width].
  void logits(int64_t head, const float* hidden, int64_t rows, uint8_t* scratch, ThreadPool& pool, float* logits) const;

 private:
  struct Block {
    Weight weight;
    std::vector<float> bias;
  };
  struct Head {
    std::vector<Block> blocks;
    Weight out;
  };

  std::shared_ptr<const ModelFiles> files_;
  const KernelTable* table_ = nullptr;
  DraftWeights weights_;
  std::vector<Head> heads_;
  int64_t width_ = 0, vocab_ = 0;
};

}  // namespace millrace
