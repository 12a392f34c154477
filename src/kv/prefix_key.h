// PrefixKey: identifies a full block together with everything before it. Blocks form chains:
//
//   root(tenant, identity) -> key 0 = hash(root, tokens 0) -> key 1 = hash(key 0, tokens 1) -> ...
//
// All 128 bits of the previous key are hashed, so two chains share a key only if XXH3 yields equal 128-bit hashes. The
// prefix store writes keys to disk: their computation is frozen with its format version.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/token.h"

namespace millrace {

struct PrefixKey {
  uint64_t low = 0, high = 0;
  bool operator==(const PrefixKey&) const = default;
};

struct PrefixKeyHash {
  size_t operator()(const PrefixKey& key) const { return key.low; }
};

// One block of a chain. Does not own the tokens.
struct ChainLink {
  PrefixKey key, parent;
  std::span<const TokenId> tokens;
  float importance = 0;  // attention mass relative to an even share; 0: never observed
};

// In no prompt: fills a last block that has fewer tokens. Blocks with it leave memory for good.
inline constexpr TokenId kFillToken = INT32_MIN;

inline PrefixKey root_key(uint64_t tenant, uint64_t identity) { return {tenant, identity}; }
PrefixKey next_key(const PrefixKey& parent, std::span<const TokenId> tokens);

// The full blocks of `tokens`.
std::vector<ChainLink> prefix_chain(std::span<const TokenId> tokens, int64_t block_tokens, uint64_t tenant,
                                    uint64_t identity = 0);

}  // namespace millrace
