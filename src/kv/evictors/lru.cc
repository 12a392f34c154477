// Least recently used; within one prompt, the last block first.
#include "kv/evictors/records.h"

namespace millrace {

const PrefixEvictor kLru = {
    .name = "lru",
    .summary = "evicts the least recently used block",
    .paper = "",
    .rank =
        [](const PrefixUse& use) {
          return EvictRank{use.last_use, -use.depth, 0};
        },
};

}  // namespace millrace
