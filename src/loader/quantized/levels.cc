#include "loader/quantized/levels.h"

#include <cmath>

#include "formats/block.h"
#include "formats/format.h"
#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

constexpr float kLeastNormalF16 = 0x1p-14f;

// Block formats of one f16 scale, whose level `middle` is 0.
struct Target {
  const char* format;
  int low, high, middle;
};
// A level of Q8_0 is a signed byte, of which rounding never uses -128.
constexpr Target kTargets[] = {{"q4_0", -8, 7, 8}, {"q5_0", -16, 15, 16}, {"q8_0", -128, 127, 127}};

const Target* target_of(const Levels& levels) {
  if (levels.group % kLevelBlock != 0) return nullptr;
  for (float scale : levels.scales)
    if (!fits_f16(scale)) return nullptr;
  for (const Target& target : kTargets)
    if (levels.low >= target.low && levels.high <= target.high) return &target;
  return nullptr;
}

void store_blocks(const Levels& levels, const Target& target, const Format& format, uint8_t* out) {
  int16_t block[kLevelBlock];
  const int64_t groups = levels.cols / levels.group;
  for (int64_t row = 0; row < levels.rows; ++row) {
    for (int64_t first = 0; first < levels.cols; first += kLevelBlock, out += format.block_bytes) {
      levels.read(row, first, kLevelBlock, block);
      std::fill_n(out, format.block_bytes, uint8_t{0});
      store_u16(out, f32_to_f16(levels.scales[static_cast<size_t>(row * groups + first / levels.group)]));
      for (int i = 0; i < kLevelBlock; ++i) format.set_level(out, i, block[i] + target.middle);
    }
  }
}

void store_values(const Levels& levels, float* out) {
  int16_t block[kLevelBlock];
  const int64_t groups = levels.cols / levels.group;
  for (int64_t row = 0; row < levels.rows; ++row) {
    for (int64_t first = 0; first < levels.cols; first += kLevelBlock) {
      const int64_t count = std::min(kLevelBlock, levels.cols - first);
      levels.read(row, first, count, block);
      for (int64_t i = 0; i < count; ++i)
        *out++ = levels.scales[static_cast<size_t>(row * groups + (first + i) / levels.group)] *
                 static_cast<float>(block[i]);
    }
  }
}

}  // namespace

bool fits_f16(float scale) {
  if (f16_to_f32(f32_to_f16(scale)) == scale) return true;
  return std::fabs(scale) >= kLeastNormalF16 && std::fabs(scale) <= kLargestF16;
}

Result<uint8_t*> replace_matrix(ModelFiles& model, StoredTensor& matrix, int64_t rows, int64_t cols,
                                const Format& format) {
  const int64_t bytes = rows * format.row_bytes(cols);
  MILLRACE_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(bytes, matrix.name.c_str()));
  Tensor& tensor = matrix.tensor;
  tensor.rank = 2;
  tensor.dims = {rows, cols, 1, 1};
  tensor.format = &format;
  tensor.data = buffer.data();
  tensor.bytes = bytes;
  matrix.type_name = format.name;
  matrix.scales = {};
  uint8_t* const memory = buffer.data();
  model.buffers.push_back(std::make_shared<AlignedBuffer>(std::move(buffer)));
  return memory;
}

Result<void> store_levels(ModelFiles& model, StoredTensor& matrix, const Levels& levels) {
  const Target* target = target_of(levels);
  const Format* format = find_format(target ? target->format : "f32");
  // No overflow: the file holds at least one bit of each value, and no value takes more than 4 bytes here.
  MILLRACE_TRY(uint8_t * memory, replace_matrix(model, matrix, levels.rows, levels.cols, *format));
  if (target)
    store_blocks(levels, *target, *format, memory);
  else
    store_values(levels, reinterpret_cast<float*>(memory));
  return {};
}

}  // namespace millrace
