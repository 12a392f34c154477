// Matrices whose inputs have outliers, and outputs computed by the definition of weight parts, for tests of the
// quantizers of weights and activations.
#pragma once

#include "compress/compress_test.h"
#include "compress/matrix_parts.h"
#include "kernels/input_rounding.h"
#include "models/blocks/changed_products.h"

namespace millrace::testing {

inline constexpr int64_t kTestRows = 48, kTestCols = 128;

// Returns inputs like those of large models: a few channels are much larger than the others, and some are far from
// zero.
inline std::vector<float> outlier_rows(int64_t rows, uint32_t seed) {
  std::vector<float> out = normal_values(rows * kTestCols, seed);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < kTestCols; ++c) {
      float& x = out[static_cast<size_t>(r * kTestCols + c)];
      if (c % 50 == 7)
        x = 20 * x + (c == 57 ? 60.0f : 0.0f);
      else
        x *= c % 3 == 0 ? 0.3f : 1.0f;
    }
  return out;
}

inline std::vector<float> held_out() { return outlier_rows(60, 1234); }
inline LinearStatistics calibrated(ThreadPool& pool) { return statistics_of(outlier_rows(300, 77), kTestCols, pool); }

inline void encode_rest(PassMatrix& matrix) {
  if (!matrix.encoded.empty()) return;
  matrix.encoded.resize(static_cast<size_t>(matrix.rows * matrix.format->row_bytes(matrix.cols)));
  for (int64_t r = 0; r < matrix.rows; ++r)
    matrix.format->encode(matrix.values.data() + r * matrix.cols,
                          matrix.encoded.data() + r * matrix.format->row_bytes(matrix.cols), matrix.cols);
}

// Computes the outputs by the definition in tensor/weight_parts.h.
inline std::vector<double> outputs(PassMatrix& matrix, const std::vector<float>& x) {
  encode_rest(matrix);
  const PassParts& parts = matrix.parts;
  std::vector<float> weights(matrix.values.size()), beside(matrix.values.size());
  for (int64_t r = 0; r < matrix.rows; ++r) matrix.decode_row(r, weights.data() + r * matrix.cols);
  ThreadPool pool(1);
  PassMatrix rest{.rows = matrix.rows, .cols = matrix.cols, .parts = parts};
  rest.parts.input = {};
  apply_parts(rest, beside, pool);
  std::vector<double> out;
  std::vector<float> scratch(static_cast<size_t>(matrix.cols)), in(static_cast<size_t>(matrix.cols));
  for (int64_t s = 0; s < std::ssize(x) / matrix.cols; ++s) {
    const float* own = x.data() + s * matrix.cols;
    change_input(parts.input, own, matrix.cols, scratch.data(), in.data());
    round_inputs(parts.input.rounding, in.data());
    for (int64_t r = 0; r < matrix.rows; ++r) {
      double sum = parts.bias.empty() ? 0 : parts.bias[static_cast<size_t>(r)];
      for (int64_t c = 0; c < matrix.cols; ++c) {
        const auto at = static_cast<size_t>(r * matrix.cols + c);
        sum += double{weights[at]} * in[static_cast<size_t>(c)] + double{beside[at]} * own[c];
      }
      out.push_back(sum);
    }
  }
  return out;
}

inline double error_between(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

inline PassMatrix matrix_in(const char* format) {
  PassMatrix out = matrix_of(kTestRows, kTestCols, format, 8);
  for (float& w : out.values) w *= 0.05f;
  return out;
}

inline PassMatrix passed(const std::string& pass, const char* format, ThreadPool& pool) {
  PassMatrix matrix = matrix_in(format);
  auto row = pass_of(pass)->apply(matrix, calibrated(pool), pool);
  EXPECT_TRUE(row.ok());
  EXPECT_NE(row->action, "left") << pass << ": " << row->why;
  return matrix;
}

inline double held_out_error(const std::string& pass, const char* format) {
  ThreadPool pool(2);
  PassMatrix matrix = passed(pass, format, pool), plain = matrix_in("f32");
  return error_between(outputs(matrix, held_out()), outputs(plain, held_out()));
}

}  // namespace millrace::testing
