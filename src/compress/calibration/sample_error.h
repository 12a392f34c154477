// SampleError: computes the cost of an input change, for passes that search for the best one. The cost is the squared
// change of some of a matrix's outputs on sampled input rows if the weights and the inputs are rounded. Weights are
// rounded plainly to the matrix's format. Every sum has a fixed order, so the cost does not depend on the number of
// threads. Thread-safe.
#pragma once

#include <vector>

#include "compress/pass.h"

namespace millrace {

class SampleError {
 public:
  // Both arguments must outlive this object; `statistics` must have samples.
  SampleError(const PassMatrix& matrix, const LinearStatistics& statistics);

  // Returns the cost of replacing W x by Q(W T^-1) r(t(x)) + W shift. Q rounds weights, r rounds inputs.
  double of(const InputChange& change, ThreadPool& pool) const;
  static int64_t bytes(int64_t cols) { return 2 * LinearStatistics::kMaxSamples * cols * 4; }

 private:
  const float* row(int64_t r) const { return matrix_.values.data() + r * matrix_.cols; }

  const PassMatrix& matrix_;
  const std::vector<float>& samples_;
  std::vector<int64_t> rows_;  // sampled rows of the matrix, evenly spaced
};

}  // namespace millrace
