// Host memory for preempted streams.
#include "kv/tiers/members/records.h"
#include "kv/tiers/memory_tier.h"

namespace millrace {

const TierMember kMemoryTier = {
    .memory = [](const KvLayout& layout, const OptionValues& options) -> Result<int64_t> {
      const int64_t blocks = (options.integer("tokens") + layout.block_tokens - 1) / layout.block_tokens;
      return blocks * layout.block_bytes();
    },
    .make = [](KvPool& pool, const OptionValues& options) { return make_memory_tier(pool, options.integer("tokens")); },
};

}  // namespace millrace
