// Least recently used; of one prompt's blocks the last one first.
#include "kv/evictors/records.h"

namespace millrace {

const PrefixEvictor kLru = {
    .name = "lru",
    .summary = "drops the block that was used longest ago",
    .paper = "",
    .rank =
        [](const PrefixUse& use) {
          return EvictRank{use.last_use, -use.depth, 0};
        },
};

}  // namespace millrace
