// Like lfu, but among equally used blocks the deepest in its prompt is evicted first: fewer requests reach it, and each
// miss loses less.
#include "kv/evictors/records.h"

namespace millrace {

const PrefixEvictor kLengthAware = {
    .name = "length_aware",
    .summary = "evicts the least frequently used block; ties: the deepest in its prompt",
    .paper = "Qin et al., 2024, Mooncake: A KVCache-centric Disaggregated Architecture for LLM Serving",
    .rank =
        [](const PrefixUse& use) {
          return EvictRank{use.uses, -use.depth, use.last_use};
        },
};

}  // namespace millrace
