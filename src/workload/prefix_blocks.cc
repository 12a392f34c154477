#include "workload/prefix_blocks.h"

#include <xxhash.h>

#include <algorithm>

namespace millrace {

std::vector<PromptBlock> prompt_blocks(const WorkloadRequest& request, int64_t token_block) {
  std::vector<PromptBlock> blocks;
  if (request.hash_block_tokens > 0) {
    int64_t left = request.prompt_tokens;
    for (uint64_t hash : request.prefix_hashes) {
      if (left <= 0) break;
      blocks.push_back({hash, std::min(left, request.hash_block_tokens)});
      left -= request.hash_block_tokens;
    }
    return blocks;
  }
  const auto size = static_cast<size_t>(token_block);
  const size_t usable = std::min(request.tokens.size(), static_cast<size_t>(request.prompt_tokens));
  uint64_t name = 0;
  for (size_t at = 0; at + size <= usable; at += size) {
    name = XXH3_64bits_withSeed(request.tokens.data() + at, size * sizeof(TokenId), name);
    blocks.push_back({name, token_block});
  }
  return blocks;
}

}  // namespace millrace
