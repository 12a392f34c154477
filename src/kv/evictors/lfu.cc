// Least frequently used, ties by recency. Counts never decay: a block that was once popular stays.
#include "kv/evictors/records.h"

namespace millrace {

const PrefixEvictor kLfu = {
    .name = "lfu",
    .summary = "evicts the least frequently used block; ties: the oldest",
    .paper = "",
    .rank =
        [](const PrefixUse& use) {
          return EvictRank{use.uses, use.last_use, -use.depth};
        },
};

}  // namespace millrace
