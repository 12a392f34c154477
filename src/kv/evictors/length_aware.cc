// Like lfu, but of equally used blocks those go first that stand later in their prompts: fewer requests reach them, and
// each one that misses loses less.
#include "kv/evictors/records.h"

namespace millrace {

const PrefixEvictor kLengthAware = {
    .name = "length_aware",
    .summary = "drops the block that was used least often, of equal ones the one deepest in its prompt",
    .paper =
        "Qin et al., 2024, Mooncake: A KVCache-centric Disaggregated Architecture for LLM Serving (LengthAwareCache)",
    .rank =
        [](const PrefixUse& use) {
          return EvictRank{use.uses, -use.depth, use.last_use};
        },
};

}  // namespace millrace
