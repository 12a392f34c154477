// Levels of columns: every build against the definitions, one value at a time, and so against each other.
#include "kernels/column_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "base/cpu.h"
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

TEST(ColumnLevels, WholeLevelsAreTheNearestWithinTheirRange) {
  for (const ColumnLevelKernels* build : builds())
    for (const float top : {3.0f, 15.0f}) {
      const Drawn drawn(64, 5);
      ColumnLevels c = drawn.columns();
      set_grids(c, -2, top / 6);
      build->whole_levels(c, top);
      for (int64_t i = 0; i < kColumns; ++i)
        for (int64_t t = 0; t < 64; ++t) {
          const float place = on_grid(c, drawn.column(i)[static_cast<size_t>(t)], i) + 0.5f;
          EXPECT_EQ(c.levels[t][i], static_cast<int>(std::clamp(place, 0.0f, top)));
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
        set_grids(c, 0.013f, 0.41f);
        symmetric ? build->symmetric_levels(c, bits, middles.data() + count / 2)
                  : build->code_levels(c, bits, middles.data());
        for (int64_t i = 0; i < kColumns; ++i)
          for (int64_t t = 0; t < 33; ++t) {
            const float place = on_grid(c, drawn.column(i)[static_cast<size_t>(t)], i);
            float least = INFINITY;
            for (const float code : codes) least = std::min(least, std::fabs(place - code));
            EXPECT_NEAR(std::fabs(place - codes[c.levels[t][i]]), least, 1e-6) << bits << symmetric;
          }
      }
}

}  // namespace
}  // namespace millrace
