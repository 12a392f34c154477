// Checkpoints with weights of 4-bit floats (formats/e2m1.h), by compressed-tensors and NVIDIA's Model Optimizer. Of a
// [rows, cols] matrix:
//
//   weight_packed [rows, cols / 2] U8        the value before is in the low half of a byte; Model Optimizer: weight
//   NVFP4   weight_scale [rows, cols / 16] F8_E4M3
//           weight_global_scale [1] F32      scales are divided by it; Model Optimizer: weight_scale_2, by which they
//                                            are multiplied
//   MXFP4   weight_scale [rows, cols / 32] U8, exponents of 2, raised by 127
//
// They become the formats of these names, without a change of any value; NVFP4 with columns that are no whole blocks of
// 64 becomes F32. What inputs are rounded to (input_global_scale, input_scale) is left out.
#include <fmt/format.h>

#include <cmath>

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/format.h"
#include "loader/quantized/methods.h"

namespace millrace {
namespace {

constexpr int64_t kNvfp4Run = 16, kMxfp4Run = 32;
constexpr int kMxfp4Nan = 255;

int float4_code(const uint8_t* packed, int64_t i) { return packed[i / 2] >> (i % 2 * 4) & 15; }

Result<float> matrix_scale_of(const QuantizedTensors& tensors) {
  const bool divides = tensors.find("weight_global_scale") != nullptr;
  const char* const name = divides ? "weight_global_scale" : "weight_scale_2";
  MILLRACE_TRY(const std::vector<float> stored, tensors.numbers(name, 1, 1));
  const float scale = divides ? 1.0f / stored.front() : stored.front();
  if (!std::isfinite(scale) || !(scale > 0))
    return tensors.wrong(*tensors.find(name), fmt::format("is {}; must be above 0", stored.front()));
  return scale;
}

Result<void> store_nvfp4(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& matrix, int64_t rows,
                         int64_t cols) {
  if (cols % kNvfp4Run != 0)
    return tensors.wrong(matrix, fmt::format("has {} columns, which are no whole runs of {}", cols, kNvfp4Run));
  MILLRACE_TRY(const StoredTensor* scales, tensors.matrix("weight_scale", "F8_E4M3", rows, cols / kNvfp4Run));
  MILLRACE_TRY(const float factor, matrix_scale_of(tensors));
  const uint8_t *codes = matrix.tensor.data, *of_runs = scales->tensor.data;
  if (const int64_t bad = scales->tensor.format->find_non_finite(of_runs, rows * cols / kNvfp4Run); bad >= 0)
    return tensors.wrong(*scales, fmt::format("scale {} is NaN", bad));
  const Format& nvfp4 = *find_format("nvfp4");
  const bool held = cols % nvfp4.block_values == 0;
  // No overflow: the file holds 4 bits of each value, and no value takes more than 4 bytes here.
  MILLRACE_TRY(uint8_t * out, replace_matrix(model, matrix, rows, cols, held ? nvfp4 : *find_format("f32")));
  if (!held) {
    auto* values = reinterpret_cast<float*>(out);
    for (int64_t i = 0; i < rows * cols; ++i)
      values[i] = factor * (e4m3_to_f32(of_runs[i / kNvfp4Run]) * e2m1_value(float4_code(codes, i)));
    return {};
  }
  const int64_t runs = nvfp4.block_values / kNvfp4Run;
  for (int64_t i = 0; i < rows * cols; i += nvfp4.block_values, out += nvfp4.block_bytes) {
    for (int64_t run = 0; run < runs; ++run) {
      const uint8_t scale = of_runs[i / kNvfp4Run + run];
      out[run] = scale & 0x7f;
      const int flips = scale & 0x80 ? 8 : 0;  // blocks have scales without a sign
      for (int64_t j = run * kNvfp4Run; j < (run + 1) * kNvfp4Run; ++j)
        nvfp4.set_level(out, static_cast<int>(j), float4_code(codes, i + j) ^ flips);
    }
  }
  matrix.scales = {{factor}, rows, cols};
  return {};
}

Result<void> store_mxfp4(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& matrix, int64_t rows,
                         int64_t cols) {
  if (cols % kMxfp4Run != 0)
    return tensors.wrong(matrix, fmt::format("has {} columns, which are no whole runs of {}", cols, kMxfp4Run));
  MILLRACE_TRY(const StoredTensor* scales, tensors.matrix("weight_scale", "U8", rows, cols / kMxfp4Run));
  const uint8_t *codes = matrix.tensor.data, *exponents = scales->tensor.data;
  for (int64_t i = 0; i < rows * cols / kMxfp4Run; ++i)
    if (exponents[i] == kMxfp4Nan) return tensors.wrong(*scales, fmt::format("scale {} is NaN", i));
  const Format& mxfp4 = *find_format("mxfp4");
  MILLRACE_TRY(uint8_t * out, replace_matrix(model, matrix, rows, cols, mxfp4));
  for (int64_t i = 0; i < rows * cols; i += kMxfp4Run, out += mxfp4.block_bytes) {
    out[0] = exponents[i / kMxfp4Run];
    for (int64_t j = 0; j < kMxfp4Run; ++j) mxfp4.set_level(out, static_cast<int>(j), float4_code(codes, i + j));
  }
  return {};
}

}  // namespace

Result<void> store_float4(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& matrix) {
  const StoredTensor* scales = tensors.find("weight_scale");
  if (!scales) return Error::corrupt(fmt::format("{}: tensor {}weight_scale is missing", model.path, tensors.prefix()));
  if (matrix.tensor.rank != 2 || matrix.tensor.values() == 0)
    return tensors.wrong(matrix, fmt::format("has {} dimensions, must have 2", matrix.tensor.rank));
  const int64_t rows = matrix.tensor.rows(), cols = matrix.tensor.cols() * 2;
  return scales->type_name == "F8_E4M3" ? store_nvfp4(model, tensors, matrix, rows, cols)
                                        : store_mxfp4(model, tensors, matrix, rows, cols);
}

}  // namespace millrace
