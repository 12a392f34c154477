#include "kv/prefix_key.h"

#include <xxhash.h>

namespace millrace {

PrefixKey next_key(const PrefixKey& parent, std::span<const TokenId> tokens) {
  const XXH128_hash_t content = XXH3_128bits(tokens.data(), tokens.size_bytes());
  const uint64_t both[4] = {parent.low, parent.high, content.low64, content.high64};
  const XXH128_hash_t key = XXH3_128bits(both, sizeof both);
  return {key.low64, key.high64};
}

std::vector<ChainLink> prefix_chain(std::span<const TokenId> tokens, int64_t block_tokens, uint64_t tenant,
                                    uint64_t identity) {
  std::vector<ChainLink> chain;
  const auto step = static_cast<size_t>(block_tokens);
  PrefixKey parent = root_key(tenant, identity);
  for (size_t begin = 0; begin + step <= tokens.size(); begin += step) {
    const auto piece = tokens.subspan(begin, step);
    chain.push_back({next_key(parent, piece), parent, piece});
    parent = chain.back().key;
  }
  return chain;
}

}  // namespace millrace
