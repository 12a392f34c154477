// best_assignment(): solves the linear sum assignment problem, for pruners that move columns between groups.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

// Returns a column for each row, each column once, so that the sum of their values is maximal. `values`: [n, n],
// finite. Uses shortest augmenting paths (Jonker and Volgenant, 1987), O(n^3). Deterministic.
std::vector<int32_t> best_assignment(const std::vector<double>& values, int64_t n);

}  // namespace millrace
