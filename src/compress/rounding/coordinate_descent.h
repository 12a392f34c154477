// Coordinate descent on the levels of a rounded matrix. One weight after the other is assigned the level with the
// smallest squared output error, while all other weights and the scales are fixed. The error never rises. Pure
// function.
#pragma once

#include "compress/calibration/second_moments.h"
#include "compress/pass.h"

namespace millrace {

struct DescentResult {
  int64_t changed = 0;  // number of changed levels, summed over the sweeps
  int sweeps = 0;       // maximum number of sweeps that a row needed
};

// `moments`: of the inputs of the stored columns. `sweeps`: maximum number of sweeps over the columns of each row; they
// end when nothing changes. Pruned weights are not changed.
DescentResult descend(PassMatrix& matrix, const SecondMoments& moments, int sweeps, ThreadPool& pool);
// Returns the bytes needed in addition to the matrix and its moments.
int64_t descent_bytes(int64_t cols);

}  // namespace millrace
