// By what requests look at: of two blocks that are used alike, the one that the prompts' last tokens pay less attention
// to goes first. A block's importance is the attention mass that it gets, in even shares: 1 is what every block would
// get if attention were spread evenly; what nobody has looked at counts as that.
#include <algorithm>
#include <cmath>

#include "kv/evictors/records.h"

namespace millrace {

const PrefixEvictor kImportance = {
    .name = "importance",
    .summary = "drops the block with the least uses x attention mass, of equal ones the oldest",
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
