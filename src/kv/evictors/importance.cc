// Evicts by attention: of two equally used blocks, the one that receives less attention from the last tokens of prompts
// is evicted first. A block's importance is its attention mass relative to an even share: 1 is what every block would
// get if attention were spread evenly; a block that was never observed counts as 1.
#include <algorithm>
#include <cmath>

#include "kv/evictors/records.h"

namespace millrace {

const PrefixEvictor kImportance = {
    .name = "importance",
    .summary = "evicts the block with the lowest uses x attention mass; ties: the oldest",
    .paper =
        "Chen et al., 2025, IMPRESS: An Importance-Informed Multi-Tier Prefix KV Storage System for Large Language "
        "Model Inference",
    .rank =
        [](const PrefixUse& use) {
          const double importance = use.importance > 0 ? std::min(use.importance, 1e6) : 1;
          return EvictRank{std::llround(static_cast<double>(std::min<int64_t>(use.uses, 1 << 30)) * importance * 1024),
                           use.last_use, -use.depth};
        },
    .needs = kNeedsAttentionMass,
};

}  // namespace millrace
