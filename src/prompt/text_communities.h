// Groups vertices of a weighted graph by modularity, with the Louvain method (Blondel et al., 2008, Fast unfolding of
// communities in large networks). Deterministic: vertices are visited in order, and ties go to the lowest community.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

// `weights`: symmetric and not negative, [vertices, vertices]. Returns the community of each vertex, numbered from 0 in
// the order of their first vertices. Without edges, each vertex is its own community.
std::vector<int64_t> find_communities(std::span<const double> weights, int64_t vertices);

}  // namespace millrace
