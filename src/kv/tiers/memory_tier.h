// Host memory as a tier of its own, for streams that had to give way. Copies at once: a block is a few hundred
// kilobytes, and on this side of a bus there is nothing to overlap with. Every ticket carries a checksum that is looked
// at when it comes back.
#pragma once

#include <memory>

#include "kv/tiers/tier.h"

namespace millrace {

// Holds at most `tokens` tokens; takes memory as tickets come. `pool` must outlive it. Errors: user (tokens below 0).
Result<std::unique_ptr<KvTier>> make_memory_tier(KvPool& pool, int64_t tokens);

}  // namespace millrace
