// Coordinate descent on the levels of a rounded matrix: one weight after the other takes the level of its block that
// leaves the least squared output error while all others stay. The scales stay as well. The error never rises. Pure
// function.
#pragma once

#include "compress/calibration/second_moments.h"
#include "compress/pass.h"

namespace millrace {

struct DescentResult {
  int64_t changed = 0;  // levels that differ from the beginning's, counted once a sweep
  int sweeps = 0;       // of the row that took most
};

// `moments`: of the inputs of the stored columns. At most `sweeps` over the columns of each row, fewer once nothing
// changes. Pruned weights stay as they are.
DescentResult descend(PassMatrix& matrix, const SecondMoments& moments, int sweeps, ThreadPool& pool);
// Beside the matrix and its moments.
int64_t descent_bytes(int64_t cols);

}  // namespace millrace
