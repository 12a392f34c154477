// The definition of the kernels of Int8Matrix, and their version for machines without 8-bit dot products.
#include <algorithm>
#include <cmath>

#include "kernels/int8_matrix.h"

namespace millrace {
namespace {

constexpr float kMaxLevel = 127;

Int8InputSum encode_int8_ref(const Int8Input& input) {
  const float inverse = input.scale > 0 ? 1 / input.scale : 0;
  const float limit = kMaxLevel * input.scale;
  Int8InputSum out;
  for (int64_t c = 0; c < input.cols; ++c) {
    const float rounded = std::nearbyint(input.x[c] * inverse);
    const bool inside = std::fabs(rounded) <= kMaxLevel;  // false: NaN, too
    const float level = inside ? rounded : rounded > 0 ? kMaxLevel : -kMaxLevel;
    input.levels[c] = static_cast<int8_t>(level);
    out.sum += static_cast<int32_t>(level);
    if (!inside && input.outliers)
      input.outliers[out.outliers++] = {static_cast<int32_t>(c), input.x[c] - (level > 0 ? limit : -limit)};
  }
  std::fill(input.levels + input.cols, input.levels + int8_input_bytes(input.cols), int8_t{0});
  out.sum *= 128;
  return out;
}

void multiply_int8_ref(const Int8Product& product, int64_t begin, int64_t end) {
  const Int8Matrix& matrix = *product.matrix;
  const int64_t groups = (matrix.cols + 3) / 4, stride = int8_input_bytes(matrix.cols);
  for (int64_t tile = begin; tile < end; ++tile) {
    const uint8_t* const weights = matrix.packed.data() + tile * groups * kInt8TileRows * 4;
    const int64_t rows = std::min(kInt8TileRows, matrix.rows - tile * kInt8TileRows);
    for (int64_t t = 0; t < product.tokens; ++t) {
      const int8_t* const levels = product.levels + t * stride;
      int32_t sums[kInt8TileRows] = {};
      for (int64_t g = 0; g < groups; ++g)
        for (int64_t r = 0; r < kInt8TileRows; ++r)
          for (int64_t c = 0; c < 4; ++c) sums[r] += weights[(g * kInt8TileRows + r) * 4 + c] * levels[4 * g + c];
      if (!product.y[t]) continue;
      for (int64_t r = 0; r < rows; ++r)
        product.y[t][tile * kInt8TileRows + r] = static_cast<float>(sums[r] - product.sums[t]) * product.scale;
    }
  }
}

void add_int8_columns_ref(const Int8Term* terms, int64_t count, int64_t begin, int64_t end, float* y) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t r = begin; r < end; ++r) y[r] += terms[i].column[r] * terms[i].residual;
}

}  // namespace

Int8Kernels int8_kernels_ref() { return {encode_int8_ref, multiply_int8_ref, add_int8_columns_ref}; }

}  // namespace millrace
