// Levels of columns: every build against the definitions, one value at a time, and so against each other.
#include "kernels/column_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "base/cpu.h"
#include "kernels/kernel_table.h"
#include "tensor/half.h"

namespace millrace {
namespace {

std::vector<const ColumnLevelKernels*> builds() {
  std::vector<const ColumnLevelKernels*> out = {&portable_column_levels()};
#if defined(__x86_64__)
  if (detect_isa().includes(Isa::avx2)) out.push_back(&avx2_column_levels());
  if (detect_isa().includes(Isa::avx2.with(Feature::avx512))) out.push_back(&avx512_column_levels());
#endif
  return out;
}

struct Drawn {
  int64_t tokens;
  std::vector<float> rows;  // [tokens][stride]
  static constexpr int64_t kStride = kColumns + 5;

  Drawn(int64_t count, uint64_t seed) : tokens(count) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < tokens * kStride; ++i) {
      const int64_t column = i % kStride;
      const float x =
          column == 3 ? 2.0f : normal(random) * (column % 7 == 2 ? 30.0f : 1.0f) + (column % 5 == 1 ? 4 : 0);
      rows.push_back(f16_to_f32(f32_to_f16(x)));
    }
  }
  ColumnLevels columns() const {
    ColumnLevels c;
    c.tokens = tokens;
    c.rows = rows.data();
    c.stride = kStride;
    return c;
  }
  std::vector<float> column(int64_t c) const {
    std::vector<float> out;
    for (int64_t t = 0; t < tokens; ++t) out.push_back(rows[static_cast<size_t>(t * kStride + c)]);
    return out;
  }
};

TEST(ColumnLevels, RangesAndTheFarthestFromTheMedian) {
  for (const ColumnLevelKernels* build : builds())
    for (const int64_t tokens : {1, 2, 31, 32, 64, 128}) {
      const Drawn drawn(tokens, static_cast<uint64_t>(tokens));
      ColumnLevels c = drawn.columns();
      build->ranges(c);
      build->farthest(c);
      for (int64_t i = 0; i < kColumns; ++i) {
        const std::vector<float> values = drawn.column(i);
        EXPECT_EQ(c.low[i], std::ranges::min(values));
        EXPECT_EQ(c.high[i], std::ranges::max(values));
        std::vector<float> sorted = values;
        std::ranges::sort(sorted);
        const float median = sorted[sorted.size() / 2], far = values[static_cast<size_t>(c.place[i])];
        for (const float x : values) EXPECT_LE(std::fabs(x - median), std::fabs(far - median)) << tokens << " " << i;
        EXPECT_EQ(std::ranges::find(values, far) - values.begin(), c.place[i]);
      }
    }
}

TEST(ColumnLevels, RangesOfACopyAreThoseOfTheRows) {
  for (const ColumnLevelKernels* build : builds())
    for (const int64_t tokens : {1, 2, 31, 32, 64, 128}) {
      const Drawn drawn(tokens, static_cast<uint64_t>(tokens));
      ColumnLevels of_rows = drawn.columns(), of_copy = drawn.columns();
      std::vector<float> copy(static_cast<size_t>(tokens * kColumns));
      build->ranges(of_rows);
      build->copied_ranges(of_copy, copy.data());
      EXPECT_EQ(of_copy.rows, copy.data());
      for (int64_t i = 0; i < kColumns; ++i) {
        EXPECT_EQ(of_copy.low[i], of_rows.low[i]);
        EXPECT_EQ(of_copy.high[i], of_rows.high[i]);
        const std::vector<float> values = drawn.column(i);
        for (int64_t t = 0; t < tokens; ++t)
          EXPECT_EQ(of_copy.rows[t * of_copy.stride + i], values[static_cast<size_t>(t)]);
      }
    }
}

TEST(ColumnLevels, HalvesAreRoundedToNearestEven) {
  std::vector<float> values;
  for (uint32_t half = 0; half <= 0x7bff; ++half) {  // every f16, and the middles between them
    const float x = f16_to_f32(static_cast<uint16_t>(half)), next = f16_to_f32(static_cast<uint16_t>(half + 1));
    values.push_back(x);
    if (half == 0x7bff) continue;
    const float middle = x + (next - x) / 2;
    values.insert(values.end(), {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, next)});
  }
  for (const float tiny : {1e-30f, 1e-8f, 3e-8f, 5.9e-8f}) values.push_back(tiny);
  while (values.size() % (kColumns / 2) != 0) values.push_back(1);
  for (const ColumnLevelKernels* build : builds())
    for (size_t at = 0; at < values.size(); at += kColumns / 2) {
      float x[kColumns], rounded[kColumns];
      uint16_t halves[kColumns];
      for (size_t i = 0; i < kColumns; ++i) x[i] = (i % 2 ? -1.0f : 1.0f) * values[at + i / 2];
      build->round_halves(x, halves, rounded);
      for (size_t i = 0; i < kColumns; ++i) {
        ASSERT_EQ(halves[i], f32_to_f16(x[i])) << x[i];
        ASSERT_EQ(std::bit_cast<uint32_t>(rounded[i]), std::bit_cast<uint32_t>(f16_to_f32(halves[i]))) << x[i];
      }
    }
}

// Units of levels, of all tokens (AffineRows).
class Units {
 public:
  Units(ColumnLevels& c, int bits) : bits_(bits), units_(static_cast<size_t>(kStride * c.tokens), 0xa5) {
    c.bits = bits;
    c.out = units_.data();
    c.out_stride = kStride;
  }
  int level(int64_t token, int64_t column) const {
    const int64_t values = affine_unit_values(bits_), bytes = affine_unit_bytes(bits_);
    const uint8_t* const unit = units_.data() + token * kStride + column / values * bytes;
    const int64_t i = column % values;
    const int low = unit[i % 8] >> (i / 8 * (bits_ == 4 ? 4 : 2)) & (bits_ == 4 ? 15 : 3);
    return bits_ == 3 ? low | (unit[8 + i / 8] >> (i % 8) & 1) << 2 : low;
  }
  bool rest_untouched() const {
    for (size_t i = 0; i < units_.size(); ++i)
      if (static_cast<int64_t>(i) % kStride >= affine_row_bytes(bits_, kColumns) && units_[i] != 0xa5) return false;
    return true;
  }

 private:
  static constexpr int64_t kStride = 19;
  int bits_;
  std::vector<uint8_t> units_;
};

// A value's place on the grid, as the kernels compute it.
float on_grid(const ColumnLevels& c, float value, int64_t column) {
  return (value - c.zero[column]) * c.inverse[column];
}

void set_grids(ColumnLevels& c, float zero, float inverse) {
  for (int64_t i = 0; i < kColumns; ++i) {
    c.zero[i] = zero + 0.1f * static_cast<float>(i);
    c.inverse[i] = i % 11 == 4 ? 0.0f : inverse;
  }
}

TEST(ColumnLevels, GridsAreRoundedToF16) {
  for (const ColumnLevelKernels* build : builds())
    for (const float size : {1e-6f, 1.0f, 65504.0f}) {
      ColumnLevels c;
      for (int64_t i = 0; i < kColumns; ++i) {
        c.low[i] = f16_to_f32(f32_to_f16(size * (static_cast<float>(i) * 0.06f - 1)));
        c.high[i] = i % 9 == 0 ? c.low[i] : size;
      }
      for (const bool middle : {false, true}) {
        const bool fits = middle ? build->grids_from_middle(c) : build->grids_from_low(c, 0.95f, 7);
        bool all_fit = true;
        for (int64_t i = 0; i < kColumns; ++i) {
          const float low = middle ? c.low[i] : c.low[i] * 0.95f;
          const float zero = middle ? (c.low[i] + c.high[i]) / 2 : low;
          const float step = middle ? (c.high[i] - c.low[i]) / 2 : (c.high[i] * 0.95f - low) / 7;
          ASSERT_EQ(c.zero_bits[i], f32_to_f16(zero));
          ASSERT_EQ(c.step_bits[i], f32_to_f16(step));
          ASSERT_EQ(c.zero[i], f16_to_f32(c.zero_bits[i]));
          ASSERT_EQ(c.step[i], f16_to_f32(c.step_bits[i]));
          ASSERT_EQ(c.inverse[i], c.step[i] > 0 ? 1 / c.step[i] : 0);
          all_fit &= (middle ? std::fabs(c.zero[i]) + c.step[i] : zero + 7 * c.step[i]) <= 65504;
        }
        EXPECT_EQ(fits, all_fit) << size << middle;
      }
      EXPECT_TRUE(build->grids_from_low(c, 0.5f, 7));
    }
}

TEST(ColumnLevels, WholeLevelsAreTheNearestWithinTheirRange) {
  for (const ColumnLevelKernels* build : builds())
    for (const int bits : {2, 3, 4}) {
      const auto top = static_cast<float>((1 << bits) - 1);
      const Drawn drawn(64, 5);
      ColumnLevels c = drawn.columns();
      const Units units(c, bits);
      set_grids(c, -2, top / 6);
      build->whole_levels(c);
      EXPECT_TRUE(units.rest_untouched());
      for (int64_t i = 0; i < kColumns; ++i)
        for (int64_t t = 0; t < 64; ++t) {
          const float place = on_grid(c, drawn.column(i)[static_cast<size_t>(t)], i) + 0.5f;
          EXPECT_EQ(units.level(t, i), static_cast<int>(std::clamp(place, 0.0f, top)));
        }
    }
}

TEST(ColumnLevels, CodesAreTheNearest) {
  for (const ColumnLevelKernels* build : builds())
    for (const int bits : {2, 3, 4})
      for (const bool symmetric : {false, true}) {
        const int count = 1 << bits;
        std::vector<float> codes;
        for (int i = 0; i < count; ++i)
          codes.push_back(symmetric ? static_cast<float>(2 * i + 1 - count) / static_cast<float>(count)
                                    : static_cast<float>(i * i) / static_cast<float>(count * count) - 0.4f);
        std::vector<float> middles;
        for (size_t i = 0; i + 1 < codes.size(); ++i) middles.push_back((codes[i] + codes[i + 1]) / 2);
        const Drawn drawn(33, 6);
        ColumnLevels c = drawn.columns();
        const Units units(c, bits);
        set_grids(c, 0.013f, 0.41f);
        symmetric ? build->symmetric_levels(c, middles.data() + count / 2) : build->code_levels(c, middles.data());
        EXPECT_TRUE(units.rest_untouched());
        for (int64_t i = 0; i < kColumns; ++i)
          for (int64_t t = 0; t < 33; ++t) {
            const float place = on_grid(c, drawn.column(i)[static_cast<size_t>(t)], i);
            float least = INFINITY;
            for (const float code : codes) least = std::min(least, std::fabs(place - code));
            EXPECT_NEAR(std::fabs(place - codes[static_cast<size_t>(units.level(t, i))]), least, 1e-6)
                << bits << symmetric;
          }
      }
}

}  // namespace
}  // namespace millrace
