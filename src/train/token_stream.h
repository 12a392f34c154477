// TokenStream: forms batches of windows from tokenized stories. Each epoch has the stories in a new order, concatenated
// as <s> story </s> <s> story </s> ..., and split into windows. The state consists of two numbers, so a run can be
// resumed. Not thread-safe.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace millrace {

struct TokenBatch {
  torch::Tensor inputs;   // [rows, window] int64
  torch::Tensor targets;  // [rows * window] int64: the next token after each input
};

class TokenStream {
 public:
  TokenStream(std::vector<std::vector<TokenId>> stories, uint64_t seed);

  TokenBatch next(int64_t rows, int64_t window);

  int64_t tokens_per_epoch() const { return tokens_; }
  int64_t epoch() const { return epoch_; }
  int64_t cursor() const { return cursor_; }
  double epochs_done() const {
    return static_cast<double>(epoch_) + static_cast<double>(cursor_) / static_cast<double>(tokens_);
  }
  void seek(int64_t epoch, int64_t cursor);

 private:
  void shuffle();

  std::vector<std::vector<TokenId>> stories_;
  std::vector<TokenId> stream_;
  uint64_t seed_;
  int64_t tokens_ = 0, epoch_ = 0, cursor_ = 0;
};

}  // namespace millrace
