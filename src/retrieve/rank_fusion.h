// Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009, Reciprocal Rank Fusion Outperforms Condorcet and
// Individual Rank Learning Methods): a chunk's score is the sum of 1 / (60 + rank) over the lists that have it, where
// ranks count from 1. Scores of different methods need not be comparable. Pure function.
#pragma once

#include <span>
#include <vector>

#include "retrieve/index_store.h"

namespace millrace {

inline constexpr double kFusionConstant = 60;

// Returns the chunks of all lists, best first; of equal scores the lower identifier first.
std::vector<RankedChunk> fuse_ranks(std::span<const std::vector<RankedChunk>> lists);
// Sorts by score, then identifier, and keeps the first `k`.
void keep_best(std::vector<RankedChunk>& all, int64_t k);

}  // namespace millrace
