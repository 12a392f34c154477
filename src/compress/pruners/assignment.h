// best_assignment: the linear sum assignment problem, for pruners that move columns between groups.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

// values [n, n]: a column for each row, each column once, with the largest sum. Shortest augmenting paths (Jonker and
// Volgenant, 1987), O(n^3); the same for the same values. Finite values only.
std::vector<int32_t> best_assignment(const std::vector<double>& values, int64_t n);

}  // namespace millrace
