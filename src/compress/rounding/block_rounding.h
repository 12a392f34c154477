// Rounds a matrix block by block, each weight to the nearest level of its block. Stateless.
#pragma once

#include <vector>

#include "compress/pass.h"

namespace millrace {

// Weights of the squared errors.
struct ErrorWeights {
  std::vector<double> columns;  // [cols]; empty: all the same
  bool by_value = false;        // true: multiplied by (w^2 + the row's mean of w^2), for a weight w of the matrix
};

// Fills `matrix.encoded`. If `search`, ScaleSearch chooses the scales, using `weights`. Otherwise the format's plain
// rounding chooses them, and `weights` have no effect.
void round_blocks(PassMatrix& matrix, bool search, const ErrorWeights& weights, ThreadPool& pool);

}  // namespace millrace
