// TokenCascade: the decision of layers that drop tokens one after the other (Wang et al., 2021, "SpAtten: Efficient
// Sparse Attention Architecture with Cascade Token and Head Pruning"). A token that one layer drops is also dropped by
// all later layers. The worth of a token is the attention that it has received in all layers since it was stored, even
// in layers that have dropped it. Not thread-safe.
//
//   layer 0   a b c d e f     budget 5: drops b     a c d e f      worth of a to f: that of layers 0, 1 and 2
//   layer 1   a b c d   f     budget 4: drops b     a c d f
//   layer 2     b   d   f     budget 3: drops b     d f            fewer than its budget, until more tokens come
#pragma once

#include <span>
#include <vector>

#include "kv/kept_tokens.h"

namespace millrace {

class TokenCascade {
 public:
  void reserve(int64_t stored);
  void clear() { worth_.clear(); }
  // Every layer keeps at most its budget of the tokens that it has seen (KeptTokens::see()). Their sums are added to
  // the tokens' worth, and begin at 0.
  void decide(const TokenEvictor& evictor, std::span<KeptTokens> layers);

 private:
  void add_sums(KeptTokens& layer);
  void keep(const TokenEvictor& evictor, int64_t budget, KeptTokens& layer);

  std::vector<int64_t> worth_;       // worth of the first layer's tokens
  std::vector<int32_t> positions_;   // positions of the first layer's tokens, before the decision
  std::vector<int32_t> left_;        // positions that the layer before keeps
  std::vector<int32_t> slots_;       // slots of one layer's remaining tokens, with ...
  std::vector<int32_t> candidates_;  // ... their positions
  std::vector<int64_t> candidate_worth_;
  std::vector<int32_t> dropped_;
};

}  // namespace millrace
