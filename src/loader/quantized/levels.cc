#include "loader/quantized/levels.h"

#include <algorithm>
#include <cmath>

#include "formats/block.h"
#include "formats/format.h"
#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

constexpr float kMinNormalF16 = 0x1p-14f;

// Block formats of one f16 scale, whose level `middle` is 0.
struct Target {
  const char* format;
  int low, high, middle;
};
// A level of Q8_0 is a signed byte, of which rounding never uses -128.
constexpr Target kTargets[] = {{"q4_0", -8, 7, 8}, {"q5_0", -16, 15, 16}, {"q8_0", -128, 127, 127}};

const Target* target_of(const Levels& levels) {
  if (levels.group % kLevelBlock != 0 || levels.cols % kLevelBlock != 0) return nullptr;
  for (float scale : levels.scales)
    if (!fits_f16(scale)) return nullptr;
  for (const Target& target : kTargets)
    if (levels.low >= target.low && levels.high <= target.high) return &target;
  return nullptr;
}

// Blocks of a scale and a minimum: value = d * (level - least) + d * least, where `least` is the smallest level of
// the block or one below it.
constexpr int kMaxAffineBlock = 128;

class AffineBlocks {
 public:
  AffineBlocks(const Levels& levels, const Format& format) : levels_(levels), format_(format) {}

  // Whether all values are those of the levels under scales in f16.
  bool exact() const {
    return for_blocks([&](float scale, const int16_t* block) { return least_of(scale, block) != kNone; });
  }

  void store(uint8_t* out) const {
    for_blocks([&](float scale, const int16_t* block) {
      const int least = least_of(scale, block);
      std::fill_n(out, format_.block_bytes, uint8_t{0});
      store_u16(out, f32_to_f16(scale));
      store_u16(out + 2, f32_to_f16(scale * static_cast<float>(least)));
      for (int i = 0; i < format_.block_values; ++i) format_.set_level(out, i, block[i] - least);
      out += format_.block_bytes;
      return true;
    });
  }

 private:
  static constexpr int kNone = 1 << 15;

  // The level that is stored as 0; kNone: the block does not fit.
  int least_of(float scale, const int16_t* block) const {
    const auto [low, high] = std::minmax_element(block, block + format_.block_values);
    for (int least = *low; *high - least < format_.levels; --least) {
      const float minimum = scale * static_cast<float>(least);
      if (f16_to_f32(f32_to_f16(minimum)) == minimum) return least;
    }
    return kNone;
  }

  // visit(scale as f16 has it, levels) of every block; stops where it returns false.
  template <typename Visit>
  bool for_blocks(const Visit& visit) const {
    int16_t block[kMaxAffineBlock];
    const int64_t groups = levels_.groups(), values = format_.block_values;
    for (int64_t row = 0; row < levels_.rows; ++row) {
      for (int64_t first = 0; first < levels_.cols; first += values) {
        for (int64_t at = 0; at < values; at += kLevelBlock) levels_.read(row, first + at, kLevelBlock, block + at);
        const float scale = levels_.scales[static_cast<size_t>(row * groups + first / levels_.group)];
        if (!visit(f16_to_f32(f32_to_f16(scale)), block)) return false;
      }
    }
    return true;
  }

  const Levels& levels_;
  const Format& format_;
};

// The affine format that holds the levels exactly; null: none.
const Format* affine_format_of(const Levels& levels) {
  constexpr int kMaxRange = 14;  // of 3 bits with zero points from one end to the other
  if (levels.high - levels.low > kMaxRange || levels.group % 64 != 0 || levels.cols % 64 != 0) return nullptr;
  if (!std::ranges::all_of(levels.scales, fits_f16)) return nullptr;
  const bool wide = levels.group % 128 == 0 && levels.cols % 128 == 0;
  for (const char* name : {wide ? "q2_g128" : "q2_g64", wide ? "q3_g128" : "q3_g64"}) {
    const Format* format = find_format(name);
    if (AffineBlocks(levels, *format).exact()) return format;
  }
  return nullptr;
}

void store_blocks(const Levels& levels, const Target& target, const Format& format, uint8_t* out) {
  int16_t block[kLevelBlock];
  const int64_t groups = levels.groups();
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
  const int64_t groups = levels.groups();
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
  return std::fabs(scale) >= kMinNormalF16 && std::fabs(scale) <= kLargestF16;
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
  const Format* affine = affine_format_of(levels);
  const Target* target = affine ? nullptr : target_of(levels);
  const Format* format = affine ? affine : find_format(target ? target->format : "f32");
  // No overflow: the file holds at least one bit of each value, and no value takes more than 4 bytes here.
  MILLRACE_TRY(uint8_t * memory, replace_matrix(model, matrix, levels.rows, levels.cols, *format));
  if (affine)
    AffineBlocks(levels, *affine).store(memory);
  else if (target)
    store_blocks(levels, *target, *format, memory);
  else
    store_values(levels, reinterpret_cast<float*>(memory));
  return {};
}

}  // namespace millrace
