// HeadCascade: which KV heads of each layer attend, for evictors that prune heads (SpAtten; Wang et al., 2021). A
// head's importance is the L1 size of its outputs, summed over a stream's tokens and layers; a layer keeps the most
// important of those that the layer before it keeps. Query heads that share a KV head are pruned together, because only
// then their keys and values are not read. Sums are integers, so the order of addition does not matter. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/token_evictor.h"

namespace millrace {

class HeadCascade {
 public:
  static constexpr double kUnit = 1.0 / (1 << 20);
  // maximum size of a token's outputs in one head and layer, so that no sum overflows
  static constexpr double kMaxSize = 1e4;
  HeadCascade(int64_t layers, int64_t heads);
  // So that a step allocates nothing, with drafts of up to `drafted` tokens.
  void reserve(int64_t drafted);

  std::span<int64_t> worth() { return worth_; }  // [heads], to add to, in units of kUnit
  // Worth that each of a step's drafted tokens adds, [drafted, heads], set to zero; it counts if the token is kept.
  std::span<int64_t> draft_worth(int64_t drafted);
  std::span<int64_t> draft_worth() { return draft_worth_; }
  // The next one of them is kept.
  void keep_drafted();
  void decide(const TokenEvictor& evictor);
  void clear();

  // [heads] of a layer, 0: does not attend. Null: all do.
  const uint8_t* kept(int64_t layer) const { return decided_ ? kept_.data() + layer * heads_ : nullptr; }
  int64_t heads() const { return heads_; }

 private:
  int64_t layers_, heads_, kept_drafts_ = 0;
  bool decided_ = false;
  std::vector<int64_t> worth_, draft_worth_;
  std::vector<uint8_t> kept_;  // [layers, heads]
  std::vector<int32_t> order_;
};

// Bytes of one.
inline int64_t head_cascade_bytes(int64_t layers, int64_t heads, int64_t drafted) {
  return heads * (layers + 4 + 8 * (1 + drafted));
}

}  // namespace millrace
