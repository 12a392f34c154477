// Rounding a matrix block by block, each weight to the nearest level of its block. Pure function.
#pragma once

#include <vector>

#include "compress/pass.h"

namespace millrace {

// How much the square of an error counts.
struct ErrorWeights {
  std::vector<double> columns;  // [cols]; empty: all the same
  bool by_value = false;        // times w^2 + the mean of w^2 over the row
};

// Fills `matrix.encoded`: scales by ScaleSearch, or as plain rounding chooses them.
void round_blocks(PassMatrix& matrix, bool search, const ErrorWeights& weights, ThreadPool& pool);

}  // namespace millrace
