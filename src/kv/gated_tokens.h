// GatedTokens: for one layer with gates, the rows by which later tokens judge a stream's stored tokens, and the token
// of the text from which on each of them is no longer seen. A token that has ended is dropped at the next decision.
// Plain data in the order of slots; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/token_evictor.h"

namespace millrace {

class GatedTokens {
 public:
  static constexpr int32_t kStays = INT32_MAX;

  // So that a step allocates nothing. `dims`: floats of a token's row.
  void reserve(int64_t stored, TokenGate gate, int64_t dims);
  // Announces that the pass computes `count` tokens from `first` of the text on, in slots from `slot` on. Tokens that
  // were in these slots, rejected drafted ones, are forgotten; tokens that they had ended are visible again. New tokens
  // stay, with weight 1.
  void begin(int64_t first, int64_t slot, int64_t count, TokenGate gate, int64_t dims);

  std::span<int32_t> ends() { return ends_; }      // [slots], the index in the text of the token that ends one
  std::span<float> weights() { return weights_; }  // [slots], of TokenGate::selection
  float* row(int64_t slot) { return rows_.data() + slot * dims_; }  // [dims], of TokenGate::pairs

  // The slots of the tokens that stay; valid until the next call.
  std::span<const int32_t> staying();
  // From now on these tokens are all that is stored.
  void keep_staying();
  void clear();

 private:
  int64_t dims_ = 0;
  std::vector<int32_t> ends_, staying_;
  std::vector<float> rows_, weights_;
};

}  // namespace millrace
