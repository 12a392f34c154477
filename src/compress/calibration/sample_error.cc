#include "compress/calibration/sample_error.h"

#include <algorithm>

#include "compress/matrix_parts.h"
#include "kernels/input_rounding.h"
#include "models/blocks/changed_products.h"

namespace millrace {
namespace {

constexpr int64_t kSampledRows = 32;  // of the matrix

double sample_dot(const float* a, const float* b, int64_t n) {
  float sums[8] = {};
  for (int64_t i = 0; i + 8 <= n; i += 8)
    for (int64_t k = 0; k < 8; ++k) sums[k] += a[i + k] * b[i + k];
  double sum = 0;
  for (float part : sums) sum += part;
  for (int64_t i = n / 8 * 8; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

SampleError::SampleError(const PassMatrix& matrix, const LinearStatistics& statistics)
    : matrix_(matrix), samples_(statistics.samples) {
  const int64_t step = (matrix.rows + kSampledRows - 1) / kSampledRows;
  for (int64_t r = 0; r < matrix.rows; r += step) rows_.push_back(r);
}

double SampleError::of(const InputChange& change, ThreadPool& pool) const {
  const int64_t cols = matrix_.cols, samples = std::ssize(samples_) / cols;
  std::vector<float> inputs(samples_.size());
  pool.parallel_for(samples, [&](int64_t i, int) {
    std::vector<float> scratch(static_cast<size_t>(cols));
    float* out = inputs.data() + i * cols;
    change_input(change, samples_.data() + i * cols, cols, scratch.data(), out);
    round_inputs(change.rounding, out);
  });
  std::vector<double> errors(rows_.size());
  pool.parallel_for(std::ssize(rows_), [&](int64_t i, int) {
    const float* plain = row(rows_[static_cast<size_t>(i)]);
    std::vector<float> stored(plain, plain + cols), scratch;
    store_row(change, stored.data(), cols, scratch);
    std::vector<uint8_t> encoded(static_cast<size_t>(matrix_.format->row_bytes(cols)));
    matrix_.format->encode(stored.data(), encoded.data(), cols);
    matrix_.format->decode(encoded.data(), stored.data(), cols);
    const double bias = change.shift.empty() ? 0 : sample_dot(plain, change.shift.data(), cols);
    for (int64_t s = 0; s < samples; ++s) {
      const double error = sample_dot(stored.data(), inputs.data() + s * cols, cols) + bias -
                           sample_dot(plain, samples_.data() + s * cols, cols);
      errors[static_cast<size_t>(i)] += error * error;
    }
  });
  double sum = 0;
  for (double error : errors) sum += error;
  return sum;
}

}  // namespace millrace
