// Least frequently used, equal ones by recency. Counts never fade: what was popular once stays.
#include "kv/evictors/records.h"

namespace millrace {

const PrefixEvictor kLfu = {
    .name = "lfu",
    .summary = "drops the block that was used least often, of equal ones the oldest",
    .paper = "",
    .rank =
        [](const PrefixUse& use) {
          return EvictRank{use.uses, use.last_use, -use.depth};
        },
};

}  // namespace millrace
