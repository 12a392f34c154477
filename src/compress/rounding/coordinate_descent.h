// Coordinate descent on the levels of a rounded matrix. One weight after the other is assigned the level of its block
// with the least squared output error, while all other weights stay. The scales stay as well. The error never rises.
// Pure function.
#pragma once

#include "compress/calibration/second_moments.h"
#include "compress/pass.h"

namespace millrace {

struct DescentResult {
  int64_t changed = 0;  // levels that differ from the beginning's, counted once a sweep
  int sweeps = 0;       // sweeps of the row that needed most
};

// `moments`: of the inputs of the stored columns. At most `sweeps` over the columns of each row, fewer once nothing
// changes. Pruned weights stay as they are.
DescentResult descend(PassMatrix& matrix, const SecondMoments& moments, int sweeps, ThreadPool& pool);
// Beside the matrix and its moments.
int64_t descent_bytes(int64_t cols);

}  // namespace millrace
