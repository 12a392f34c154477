#include "retrieve/rank_fusion.h"

#include <algorithm>
#include <map>

namespace millrace {

std::vector<RankedChunk> fuse_ranks(std::span<const std::vector<RankedChunk>> lists) {
  std::map<int64_t, double> scores;
  for (const auto& list : lists)
    for (size_t rank = 0; rank < list.size(); ++rank)
      scores[list[rank].id] += 1 / (kFusionConstant + 1 + static_cast<double>(rank));
  std::vector<RankedChunk> out;
  for (const auto& [id, score] : scores) out.push_back({id, score});
  keep_best(out, std::ssize(out));
  return out;
}

void keep_best(std::vector<RankedChunk>& all, int64_t k) {
  std::ranges::sort(all, [](const RankedChunk& a, const RankedChunk& b) {
    return a.score != b.score ? a.score > b.score : a.id < b.id;
  });
  if (static_cast<int64_t>(all.size()) > k) all.resize(static_cast<size_t>(k));
}

}  // namespace millrace
