// Plans a pool whose keys and values are partly in a file (kv/staged_layers.h): the number of its blocks, and how many
// of them have memory in every layer.
#pragma once

#include "kv/tiers/places.h"
#include "run/plan/memory_plan.h"

namespace millrace {

struct StreamedTokens {
  int64_t wanted = 0;  // tokens that the pool should hold
  int64_t least = 0;   // tokens that it must hold
};

// Returns the number of blocks for `tokens.wanted`; if memory is too small for two layers of these, for `tokens.least`.
// Sets `places.resident` to the most blocks that fit, all of them if they do, and adds the file's buffers to
// `memory.swap`. The limit is the memory that the tier's options name, or the rest of the budget.
// Errors: user (there is no limit), resource.
Result<int64_t> plan_streamed_blocks(const KvLayout& layout, const KeyStreamOptions& options,
                                     const MemoryAccounts& accounts, const StreamedTokens& tokens, EngineMemory& memory,
                                     KvPoolOptions& places);

}  // namespace millrace
