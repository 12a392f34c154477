// Levels of a row: every build against the definitions, and with zeros of both signs against each other.
#include "kernels/row_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "base/cpu.h"
#include "kernels/column_levels.h"
#include "tensor/half.h"

namespace millrace {
namespace {

std::vector<const RowLevelKernels*> row_builds() {
  std::vector<const RowLevelKernels*> out = {&portable_column_levels().row};
#if defined(__x86_64__)
  if (detect_isa().includes(Isa::avx2)) out.push_back(&avx2_column_levels().row);
  if (detect_isa().includes(Isa::avx2.with(Feature::avx512))) out.push_back(&avx512_column_levels().row);
#endif
  return out;
}

constexpr int64_t kCounts[] = {1, 5, 16, 31, 32, 33, 48, 64, 80, 128};

struct DrawnRow {
  std::vector<float> values;
  std::vector<uint8_t> levels;
  int64_t count;

  DrawnRow(int64_t n, uint64_t seed, float skew) : count(n) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < n; ++i)
      values.push_back(f16_to_f32(f32_to_f16(normal(random) + (normal(random) > 1 ? skew : 0))));
    values.resize(static_cast<size_t>((n + kRowUnit - 1) / kRowUnit * kRowUnit), values[0]);
    levels.resize(values.size());
  }
  RowLevels row(int bits) {
    RowLevels r;
    r.values = values.data();
    r.count = count;
    r.bits = bits;
    r.levels = levels.data();
    return r;
  }
};

TEST(RowLevels, RangeAndTheFarthestFromTheMedian) {
  for (const RowLevelKernels* build : row_builds())
    for (const int64_t count : kCounts)
      for (const float skew : {-9.0f, 0.0f, 9.0f}) {
        DrawnRow drawn(count, static_cast<uint64_t>(count), skew);
        RowLevels r = drawn.row(4);
        build->range(r);
        build->farthest(r);
        std::vector<float> sorted(drawn.values.begin(), drawn.values.begin() + count);
        std::ranges::sort(sorted);
        EXPECT_EQ(r.low, sorted.front());
        EXPECT_EQ(r.high, sorted.back());
        const float median = sorted[sorted.size() / 2];
        ASSERT_LT(r.place, count);
        const float far = drawn.values[static_cast<size_t>(r.place)];
        for (const float x : sorted) EXPECT_LE(std::fabs(x - median), std::fabs(far - median)) << count << " " << skew;
        EXPECT_EQ(std::ranges::find(drawn.values, far) - drawn.values.begin(), r.place);
      }
}

TEST(RowLevels, ZerosHaveNoSign) {
  for (const RowLevelKernels* build : row_builds())
    for (size_t at = 0; at < 64; ++at) {
      DrawnRow drawn(64, 1, 0);
      std::ranges::fill(drawn.values, 0.0f);
      drawn.values[at] = -0.0f;
      RowLevels r = drawn.row(4);
      build->range(r);
      EXPECT_FALSE(std::signbit(r.low) || std::signbit(r.high)) << at;
    }
}

TEST(RowLevels, GridsAreRoundedToF16) {
  for (const RowLevelKernels* build : row_builds())
    for (const float low : {-65504.0f, -3.0f, -1e-6f, 0.0f, 60000.0f})
      for (const float high : {0.0f, 2e-6f, 4.0f, 65504.0f}) {
        if (high < low) continue;
        RowLevels r;
        r.low = low;
        r.high = high;
        bool fits = build->grid_from_low(r, 0.95f, 15);
        EXPECT_EQ(r.zero_bits, f32_to_f16(low * 0.95f));
        EXPECT_EQ(r.step_bits, f32_to_f16((high * 0.95f - low * 0.95f) / 15));
        const float step = f16_to_f32(r.step_bits);
        EXPECT_EQ(r.zero, f16_to_f32(r.zero_bits));
        EXPECT_EQ(r.inverse, step > 0 ? 1 / step : 0);
        EXPECT_EQ(fits, low * 0.95f + 15 * step <= 65504);
        fits = build->grid_from_middle(r);
        EXPECT_EQ(r.zero_bits, f32_to_f16((low + high) / 2));
        EXPECT_EQ(r.step_bits, f32_to_f16((high - low) / 2));
        EXPECT_EQ(fits, std::fabs(f16_to_f32(r.zero_bits)) + f16_to_f32(r.step_bits) <= 65504);
      }
}

// A model's keys and values may be no numbers; the search for a place then ends within the row.
TEST(RowLevels, APlaceIsWithinTheRowWhateverIsInIt) {
  for (const RowLevelKernels* build : row_builds())
    for (const int64_t count : kCounts)
      for (const float wrong : {NAN, INFINITY, -INFINITY})
        for (const size_t at : {size_t{0}, static_cast<size_t>(count - 1)}) {
          DrawnRow drawn(count, 4, 0);
          drawn.values[at] = wrong;
          if (at == 0) std::fill(drawn.values.begin() + count, drawn.values.end(), wrong);
          RowLevels r = drawn.row(4);
          build->range(r);
          build->farthest(r);
          EXPECT_GE(r.place, 0);
          EXPECT_LT(r.place, count);
        }
}

TEST(RowLevels, LevelsAreTheNearest) {
  for (const RowLevelKernels* build : row_builds())
    for (const int bits : {2, 3, 4})
      for (const int64_t count : kCounts)
        for (const bool symmetric : {false, true}) {
          const int all = 1 << bits;
          std::vector<float> codes, middles;
          for (int i = 0; i < all; ++i)
            codes.push_back(symmetric ? static_cast<float>(2 * i + 1 - all) / static_cast<float>(all)
                                      : static_cast<float>(i * i) / static_cast<float>(all * all) - 0.4f);
          for (size_t i = 0; i + 1 < codes.size(); ++i) middles.push_back((codes[i] + codes[i + 1]) / 2);
          DrawnRow drawn(count, 6, 2);
          RowLevels r = drawn.row(bits);
          r.zero = 0.013f;
          r.inverse = 0.41f;
          symmetric ? build->symmetric_levels(r, middles.data() + all / 2) : build->code_levels(r, middles.data());
          for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
            const float place = (drawn.values[i] - r.zero) * r.inverse;
            float least = INFINITY;
            for (const float code : codes) least = std::min(least, std::fabs(place - code));
            EXPECT_NEAR(std::fabs(place - codes[drawn.levels[i]]), least, 1e-6) << bits << symmetric;
          }
          r.inverse = 1.7f;
          build->whole_levels(r);
          for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
            const float place = (drawn.values[i] - r.zero) * r.inverse + 0.5f;
            EXPECT_EQ(drawn.levels[i], static_cast<int>(std::clamp(place, 0.0f, static_cast<float>(all - 1))));
          }
        }
}

}  // namespace
}  // namespace millrace
