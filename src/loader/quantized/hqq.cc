// Checkpoints of HQQ (Badri and Shaji, 2023, Half-Quadratic Quantization of Large Machine Learning Models), as
// Transformers writes them to safetensors. Of a matrix of n values:
//
//   W_q                     levels of 1, 2, 3, 4 or 8 bits, packed; 5 and 6 bits take a byte each
//   scale, zero             of each group of group_size; value = (level - zero) * scale, zero is any number
//   shape, nbits, group_size, axis     and others that do not matter here
//
// Levels are a matrix of groups: [n / group_size, group_size] if axis is 1, [group_size, n / group_size] with a group
// in a column if it is 0. Its rows are cut into as many equal parts as a byte (3 bits: a word of 32, of which 10) has
// levels, and element i of W_q holds element i of each part, the first one highest.
//
// With axis 1 and whole zeros it becomes integers under scales (levels.h); with other zeros and up to 5 bits Q4_1 or
// Q5_1, whose minimum is -zero * scale rounded to F16; else F32.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "base/ordered_json.h"
#include "formats/block.h"
#include "formats/format.h"
#include "loader/quantized/methods.h"

namespace millrace {
namespace {

constexpr int64_t kMaxHqqSize = int64_t{1} << 30;

struct HqqMatrix {
  const uint8_t* packed = nullptr;
  int64_t rows = 0, cols = 0, group = 0, axis = 0;
  int bits = 0;       // of a level
  int field = 0;      // the same as packed
  int element = 1;    // bytes
  int64_t step = 0;   // rows of a part
  int64_t lines = 0;  // of the matrix of groups, and their length
  int64_t length = 0;
  std::vector<float> scale, zero;

  int64_t groups() const { return rows * cols / group; }
  int64_t group_of(int64_t i) const { return axis == 1 ? i / group : i % length; }
  // Of values [first, first + count).
  void levels(int64_t first, int64_t count, int* out) const {
    const int parts = element == 4 ? 10 : 8 / field;
    const uint32_t mask = (1u << field) - 1;
    while (count > 0) {
      const int64_t line = first / length, at = first % length, run = std::min(count, length - at);
      const int shift = field * (parts - 1 - static_cast<int>(line / step));
      const uint8_t* from = packed + (line % step * length + at) * element;
      for (int64_t i = 0; i < run; ++i, from += element)
        *out++ = static_cast<int>((element == 4 ? load_u32(from) : *from) >> shift & mask);
      first += run;
      count -= run;
    }
  }
};

Result<int64_t> read_number(const QuantizedTensors& tensors, const char* name, int64_t least) {
  MILLRACE_TRY(const std::vector<int32_t> found, tensors.integers(name, 1, kMaxHqqSize));
  if (found[0] >= least) return int64_t{found[0]};
  return tensors.wrong(*tensors.find(name), fmt::format("is {}; must be {} at least", found[0], least));
}

Result<HqqMatrix> read_matrix(const QuantizedTensors& tensors) {
  HqqMatrix out;
  const StoredTensor& stored = *tensors.find("W_q");
  out.packed = stored.tensor.data;
  MILLRACE_TRY(const std::vector<int32_t> shape, tensors.integers("shape", 2, kMaxHqqSize));
  out.rows = shape[0];
  out.cols = shape[1];
  MILLRACE_TRY(out.group, read_number(tensors, "group_size", 1));
  MILLRACE_TRY(out.axis, read_number(tensors, "axis", 0));
  MILLRACE_TRY(const int64_t bits, read_number(tensors, "nbits", 1));
  if (out.axis > 1 || bits > 8 || bits == 7)
    return Error::unsupported(
        fmt::format("tensor {}W_q: HQQ with axis {} and {} bits is not supported; supported: axis 0 or 1 and 1 to 6 or "
                    "8 bits",
                    tensors.prefix(), out.axis, bits));
  out.bits = static_cast<int>(bits);
  out.field = bits > 4 ? 8 : out.bits;
  out.element = bits == 3 ? 4 : 1;
  const int64_t values = out.rows * out.cols;  // no overflow: kMaxHqqSize each
  if (values == 0 || values % out.group != 0)
    return tensors.wrong(stored,
                         fmt::format("groups of {} do not divide {} x {} values", out.group, out.rows, out.cols));
  out.lines = out.axis == 1 ? out.groups() : out.group;
  out.length = values / out.lines;
  const int64_t parts = out.element == 4 ? 10 : 8 / out.field;
  out.step = (out.lines - 1) / parts + 1;
  if ((out.element == 1 && out.lines % parts != 0) || stored.tensor.bytes / out.element / out.length != out.step ||
      stored.tensor.bytes % (out.element * out.length) != 0)
    return tensors.wrong(stored, fmt::format("{} bytes do not fit {} x {} values of {} bits in groups of {}",
                                             stored.tensor.bytes, out.rows, out.cols, bits, out.group));
  const int64_t down = out.axis == 1 ? out.groups() : 1;
  MILLRACE_TRY(out.scale, tensors.numbers("scale", down, out.groups() / down));
  MILLRACE_TRY(out.zero, tensors.numbers("zero", down, out.groups() / down));
  return out;
}

bool whole_zeros(const HqqMatrix& matrix) {
  for (float zero : matrix.zero)
    if (zero != std::nearbyint(zero) || std::fabs(zero) > 255) return false;
  return true;
}

// Integers: level - zero.
Levels levels_of(std::shared_ptr<const HqqMatrix> matrix) {
  Levels out{.rows = matrix->rows, .cols = matrix->cols, .group = matrix->group, .scales = matrix->scale, .read = {}};
  int least = 255, most = -255;
  for (float zero : matrix->zero) {
    least = std::min(least, static_cast<int>(zero));
    most = std::max(most, static_cast<int>(zero));
  }
  out.low = -most;
  out.high = (1 << matrix->bits) - 1 - least;
  out.read = [matrix](int64_t row, int64_t first, int64_t count, int16_t* levels) {
    int stored[kLevelBlock];
    const int64_t begin = row * matrix->cols + first;
    matrix->levels(begin, count, stored);
    for (int64_t i = 0; i < count; ++i) {
      const float zero = matrix->zero[static_cast<size_t>(matrix->group_of(begin + i))];
      levels[i] = static_cast<int16_t>(stored[i] - static_cast<int>(zero));
    }
  };
  return out;
}

// Q4_1 or Q5_1; null if neither holds the matrix.
const Format* affine_format(const HqqMatrix& matrix) {
  if (matrix.axis != 1 || matrix.group % kLevelBlock != 0 || matrix.bits > 5) return nullptr;
  for (size_t i = 0; i < matrix.scale.size(); ++i)
    if (!fits_f16(matrix.scale[i]) || std::fabs(matrix.scale[i] * matrix.zero[i]) > kLargestF16) return nullptr;
  return find_format(matrix.bits == 5 ? "q5_1" : "q4_1");
}

}  // namespace

Result<void> store_hqq(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& stored) {
  MILLRACE_TRY(HqqMatrix read, read_matrix(tensors));
  const auto matrix = std::make_shared<const HqqMatrix>(std::move(read));
  const bool in_rows = matrix->axis == 1 && matrix->cols % matrix->group == 0;
  if (in_rows && whole_zeros(*matrix)) return store_levels(model, stored, levels_of(matrix));
  const Format* affine = in_rows ? affine_format(*matrix) : nullptr;
  const Format& format = affine ? *affine : *find_format("f32");
  MILLRACE_TRY(uint8_t * memory, replace_matrix(model, stored, matrix->rows, matrix->cols, format));
  const int64_t values = matrix->rows * matrix->cols;
  int levels[kLevelBlock];
  for (int64_t first = 0; first < values; first += kLevelBlock) {
    const int64_t count = std::min(kLevelBlock, values - first);
    matrix->levels(first, count, levels);
    if (affine) {
      const auto group = static_cast<size_t>(matrix->group_of(first));
      store_u16(memory, f32_to_f16(matrix->scale[group]));
      store_u16(memory + 2, f32_to_f16(-matrix->zero[group] * matrix->scale[group]));
      for (int i = 0; i < kLevelBlock; ++i) format.set_level(memory, i, levels[i]);
      memory += format.block_bytes;
      continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      const auto group = static_cast<size_t>(matrix->group_of(first + i));
      reinterpret_cast<float*>(memory)[first + i] =
          (static_cast<float>(levels[i]) - matrix->zero[group]) * matrix->scale[group];
    }
  }
  return {};
}

}  // namespace millrace
