// SampleError: the cost of a search's candidate: the squared change of some outputs of a matrix on sampled input rows,
// with both the weights and the inputs rounded. Weights are rounded plainly to the matrix's format. Every sum has a
// fixed order, so that the choice does not depend on the number of threads. Thread-safe.
#pragma once

#include <vector>

#include "compress/pass.h"

namespace millrace {

class SampleError {
 public:
  // Both outlive it; `statistics` has samples.
  SampleError(const PassMatrix& matrix, const LinearStatistics& statistics);

  // Cost of y = Q(W T^-1) r(t(x)) + W shift.
  double of(const InputChange& change, ThreadPool& pool) const;
  static int64_t bytes(int64_t cols) { return 2 * LinearStatistics::kMaxSamples * cols * 4; }

 private:
  const float* row(int64_t r) const { return matrix_.values.data() + r * matrix_.cols; }

  const PassMatrix& matrix_;
  const std::vector<float>& samples_;
  std::vector<int64_t> rows_;  // sampled rows of the matrix, evenly spaced
};

}  // namespace millrace
