// The blocks of a prompt, represented by names: equal names mean equal prompts up to the block's end.
#pragma once

#include "workload/request.h"

namespace millrace {

struct PromptBlock {
  uint64_t name = 0;
  int64_t tokens = 0;  // number of tokens in the block; the last block of a recorded trace may be partly filled
};

// Returns the blocks from prefix_hashes, with their block size, or else the whole blocks of `token_block` tokens from
// `tokens`. Empty: the request has neither.
std::vector<PromptBlock> prompt_blocks(const WorkloadRequest& request, int64_t token_block);

// Returns the block size that prompt_blocks() uses for this request.
inline int64_t prompt_block_tokens(const WorkloadRequest& request, int64_t token_block) {
  return request.hash_block_tokens > 0 ? request.hash_block_tokens : token_block;
}

}  // namespace millrace
