// Host memory as a tier for preempted streams. Copies synchronously: a block is a few hundred kilobytes, and without a
// device bus there is nothing to overlap with. Every ticket carries a checksum that is verified when it is read back.
#pragma once

#include <memory>

#include "kv/tiers/tier.h"

namespace millrace {

// Holds at most `tokens` tokens; allocates memory per ticket. `pool` must outlive it. Errors: user (tokens below 0).
Result<std::unique_ptr<KvTier>> make_memory_tier(KvPool& pool, int64_t tokens);

}  // namespace millrace
