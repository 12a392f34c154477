// Matrices and statistics of random numbers for tests of passes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/cpu.h"
#include "compress/matrix_parts.h"
#include "compress/pass.h"

namespace millrace::testing {

// Returns approximately normal numbers: sums of uniform ones, which are equal with every standard library.
inline std::vector<float> normal_values(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(engine()) * 0x1p-32;
    x = static_cast<float>(sum);
  }
  return out;
}

// Returns input rows whose columns are correlated and differ much in size.
inline std::vector<float> correlated_rows(int64_t rows, int64_t cols, uint32_t seed) {
  std::vector<float> out = normal_values(rows * cols, seed);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 1; c < cols; ++c) {
      float& x = out[static_cast<size_t>(r * cols + c)];
      x = 0.8f * out[static_cast<size_t>(r * cols + c - 1)] + (c % 7 == 0 ? 3.0f : 0.4f) * x;
    }
  return out;
}

inline const KernelTable& test_kernels() {
  static const KernelTable table = make_kernel_table(*select_isa());
  return table;
}

inline LinearStatistics statistics_of(const std::vector<float>& x, int64_t cols, ThreadPool& pool) {
  LinearStatistics out;
  out.id = {0, LinearKind::q};
  out.rows = std::ssize(x) / cols;
  out.squares.resize(static_cast<size_t>(cols));
  out.samples.assign(x.begin(), x.begin() + std::min(out.rows, LinearStatistics::kMaxSamples) * cols);
  out.least.assign(static_cast<size_t>(cols), INFINITY);
  out.most.assign(static_cast<size_t>(cols), -INFINITY);
  for (size_t i = 0; i < x.size(); ++i) {
    float &least = out.least[i % static_cast<size_t>(cols)], &most = out.most[i % static_cast<size_t>(cols)];
    least = std::min(least, x[i]);
    most = std::max(most, x[i]);
  }
  for (size_t i = 0; i < x.size(); ++i) out.squares[i % static_cast<size_t>(cols)] += std::pow(double{x[i]}, 2);
  out.moments = SecondMoments(cols);
  EXPECT_TRUE(out.moments.add(x.data(), out.rows, test_kernels(), pool).ok());
  return out;
}

inline PassMatrix matrix_of(int64_t rows, int64_t cols, const char* format, uint32_t seed) {
  PassMatrix out;
  out.name = "test";
  out.id = {0, LinearKind::q};
  out.rows = rows;
  out.cols = cols;
  out.values = normal_values(rows * cols, seed);
  out.format = find_format(format);
  return out;
}

// Returns the matrix that is equivalent to the stored one with its parts.
inline std::vector<float> whole_matrix(const PassMatrix& matrix) {
  ThreadPool pool(1);
  std::vector<float> out(matrix.values.size());
  for (int64_t r = 0; r < matrix.rows; ++r) matrix.decode_row(r, out.data() + r * matrix.cols);
  apply_parts(matrix, out, pool);
  return out;
}

// Returns the squared change of the outputs between matrices a and b, computed by the definition.
inline double squared_outputs(const std::vector<float>& a, const std::vector<float>& b, const SecondMoments& moments) {
  const int64_t n = moments.columns();
  double sum = 0;
  for (int64_t r = 0; r < std::ssize(a) / n; ++r)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        sum += (double{a[static_cast<size_t>(r * n + i)]} - b[static_cast<size_t>(r * n + i)]) *
               (double{a[static_cast<size_t>(r * n + j)]} - b[static_cast<size_t>(r * n + j)]) *
               moments.at(std::min(i, j), std::max(i, j));
  return sum;
}

// Returns the matrix after plain rounding.
inline std::vector<float> rounded_matrix(const PassMatrix& matrix) {
  std::vector<uint8_t> rows(static_cast<size_t>(matrix.rows * matrix.format->row_bytes(matrix.cols)));
  std::vector<float> out(matrix.values.size());
  matrix.format->encode(matrix.values.data(), rows.data(), std::ssize(matrix.values));
  matrix.format->decode(rows.data(), out.data(), std::ssize(out));
  return out;
}

inline std::unique_ptr<Pass> pass_of(const std::string& text) {
  auto made = make_pass(text);
  EXPECT_TRUE(made.ok()) << text << ": " << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::move(*made) : nullptr;
}

}  // namespace millrace::testing
