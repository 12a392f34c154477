// Portable matmul for the quantized formats: stored rows unchanged, each block split once and multiplied with every
// token. The definition that the other instruction sets must match bit for bit (see quant_shape.h).
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/activation.h"
#include "kernels/families.h"
#include "kernels/quant_shape.h"
#include "tensor/half.h"

namespace millrace {
namespace {

// One block ready to multiply: signed levels and f32 scales.
struct ReadyBlock {
  int16_t level[256];
  float scale[8];    // of each group; per16: d
  float minimum[8];  // of each group; per16: the block's
  QuantBlock raw;
};

void make_ready(const QuantSource& source, const uint8_t* stored, ReadyBlock& out) {
  const QuantShape& shape = source.shape;
  source.split(stored, out.raw);
  for (int i = 0; i < shape.groups * 32; ++i) {
    int level = out.raw.level[i];
    out.level[i] = static_cast<int16_t>(shape.table == LevelTable::codes ? source.codes[level]
                                        : shape.table == LevelTable::fp4 ? kFp4Levels[level]
                                                                         : level * shape.step - shape.offset);
  }
  float d = shape.e4m3 ? 1.0f : shape.e8m0 ? e8m0_half_to_f32(static_cast<uint8_t>(out.raw.d)) : f16_to_f32(out.raw.d);
  float minimum = shape.has_min ? f16_to_f32(out.raw.min) : 0.0f;
  for (int g = 0; g < shape.groups; ++g) {
    bool scaled = shape.sub == SubScales::per32;
    out.scale[g] = scaled ? d * static_cast<float>(out.raw.scale[g]) : d;
    out.minimum[g] = scaled && shape.has_min ? minimum * static_cast<float>(out.raw.minimum[g]) : minimum;
  }
}

int dot16(const int16_t* level, const int8_t* x) {
  int sum = 0;
  for (int i = 0; i < 16; ++i) sum += level[i] * x[i];
  return sum;
}

// Adds group g of the block to y; x: the record of the same columns.
float add_group(const QuantShape& shape, const ReadyBlock& block, int g, const uint8_t* x, float y) {
  auto* levels = reinterpret_cast<const int8_t*>(x);
  int dot0 = dot16(block.level + g * 32, levels);
  int dot1 = dot16(block.level + g * 32 + 16, levels + 16);
  if (shape.sub != SubScales::per16) {
    const int dot = dot0 + dot1;
    if (shape.exact_scales())
      return std::fma(block.scale[g] * *reinterpret_cast<const float*>(x + kQ8ScaleAt), static_cast<float>(dot), y);
    const int shift = *reinterpret_cast<const int32_t*>(x + kQ8ShiftAt);
    y = std::fma(block.scale[g], static_cast<float>(dot * (1 << shift)), y);
    if (!shape.has_min) return y;
    float sum = *reinterpret_cast<const float*>(x + kQ8SumAt);
    return std::fma(-block.minimum[g], sum, y);
  }
  const auto sub_scale = [&](int i) {
    const int8_t stored = block.raw.scale[i];
    return shape.e4m3 ? f16_to_f32(e4m3_in_f16(static_cast<uint8_t>(stored))) : static_cast<float>(stored);
  };
  float scale0 = block.scale[g] * sub_scale(2 * g);
  float scale1 = block.scale[g] * sub_scale(2 * g + 1);
  float inner = std::fma(scale1, static_cast<float>(dot1), scale0 * static_cast<float>(dot0));
  if (shape.has_min) {
    auto* negated_sums = reinterpret_cast<const int32_t*>(x + kQ8SumsAt);
    int minimum = block.raw.minimum[2 * g] * negated_sums[0] + block.raw.minimum[2 * g + 1] * negated_sums[1];
    inner = std::fma(block.minimum[g], static_cast<float>(minimum), inner);
  }
  return std::fma(*reinterpret_cast<const float*>(x + kQ8ScaleAt), inner, y);
}

// One format, by its index in quant_source_at(), so that each format's kernel is a plain function pointer.
template <int kIndex>
struct QuantRef {
  static const QuantSource& source() { return *quant_source_at(kIndex); }
  static const Format* format() {
    static const Format* const found = quant_format_at(kIndex);
    return found;
  }

  // Rows of formats with a scale for the matrix begin with its unit.
  static int64_t unit_bytes() { return source().shape.e4m3 ? sizeof(float) : 0; }

  static int64_t packed_bytes(int64_t rows, int64_t cols) { return rows * (unit_bytes() + format()->row_bytes(cols)); }

  static void pack(const uint8_t* stored, const BlockScales* scales, int64_t, int64_t cols, int64_t row_begin,
                   int64_t row_end, uint8_t* packed) {
    const int64_t row_bytes = format()->row_bytes(cols);
    const float unit = source().unit * matrix_scale(scales);
    for (int64_t row = row_begin; row < row_end; ++row) {
      uint8_t* const to = packed + packed_bytes(row, cols);
      std::memcpy(to, &unit, static_cast<size_t>(unit_bytes()));
      std::memcpy(to + unit_bytes(), stored + row * row_bytes, static_cast<size_t>(row_bytes));
    }
  }

  static void run(const MatmulArgs& a) {
    const QuantSource& from = source();
    int groups = from.shape.groups;
    ReadyBlock block;
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
      const uint8_t* stored = a.weights + packed_bytes(row, a.cols);
      float unit = from.unit;
      std::memcpy(&unit, stored, static_cast<size_t>(unit_bytes()));
      stored += unit_bytes();
      for (int64_t t = 0; t < a.tokens; ++t) a.y[t * a.y_stride + row] = 0;
      for (int64_t group = 0; group < a.cols / 32; group += groups, stored += format()->block_bytes) {
        make_ready(from, stored, block);
        for (int64_t t = 0; t < a.tokens; ++t) {
          float& y = a.y[t * a.y_stride + row];
          for (int g = 0; g < groups; ++g) {
            y = add_group(from.shape, block, g, a.x + t * a.x_stride + (group + g) * kQ8GroupBytes, y);
          }
        }
      }
      for (int64_t t = 0; t < a.tokens; ++t) {
        a.y[t * a.y_stride + row] *= *reinterpret_cast<const float*>(a.x + t * a.x_stride + q8_unit_at(a.cols)) * unit;
      }
    }
  }
};

template <int... kIndex>
void add_all(KernelTable& table, std::integer_sequence<int, kIndex...>) {
  auto add = [&table](auto kernel) {
    using Ref = decltype(kernel);
    set_matmul(table, {.format = Ref::format(),
                       .layout = "stored",
                       .row_tile = 1,
                       .packed_bytes = Ref::packed_bytes,
                       .pack = Ref::pack,
                       .run = Ref::run});
  };
  (add(QuantRef<kIndex>{}), ...);
}

}  // namespace

void add_matmul_quant_ref(KernelTable& table) {
  add_all(table, std::make_integer_sequence<int, kQuantSourceCount + kCarriedCount>{});
}

}  // namespace millrace
