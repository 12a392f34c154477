// The codes of E8P with a residual against their definition: the second codebook, the search, the levels of the
// kernels.
#include "formats/e8p_residual.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "formats/format.h"

namespace millrace {
namespace {

using Point = std::array<int8_t, kE8pValues>;

std::vector<Point> second_points() {
  std::vector<Point> out(kE8Points);
  for (int p = 0; p < kE8Points; ++p) e8_values(p, out[static_cast<size_t>(p)].data());
  return out;
}

TEST(E8pResidual, TheSecondPointsAreTheShortestOfTheLattice) {
  std::set<Point> distinct;
  int norms[5] = {};
  for (const Point& point : second_points()) {
    int sum = 0, odd = 0, squares = 0;  // in halves
    for (int half : point) {
      sum += half;
      odd += half % 2 != 0 ? 1 : 0;
      squares += half * half;
    }
    EXPECT_TRUE(odd == 0 || odd == kE8pValues);
    EXPECT_EQ(sum % 4, 0);
    ASSERT_LE(squares, 16);
    norms[squares / 4] += 1;
    distinct.insert(point);
  }
  EXPECT_EQ(distinct.size(), 256u);
  EXPECT_EQ(norms[0], 1);
  EXPECT_EQ(norms[2], 240);  // all of norm 2 that E8 has
  EXPECT_EQ(norms[4], 15);
}

double distance(const float* x, const int8_t* levels, double unit) {
  double sum = 0;
  for (int i = 0; i < kE8pValues; ++i) sum += std::pow(double{x[i]} - unit * levels[i], 2);
  return sum;
}

TEST(E8pResidual, FindsTheNearestSecondPoint) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 200; ++round) {
    float x[kE8pValues];
    for (float& value : x) value = normal(engine) * (round % 2 == 0 ? 1.0f : 2.0f);
    int8_t levels[kE8pValues], quarters[kE8pValues];
    const E8pResidual three = nearest_e8p_3(x), four = nearest_e8p_4(x);
    EXPECT_EQ(three.code & 0xffff, nearest_e8p(x).code);
    EXPECT_EQ(four.code & 0xffff, nearest_e8p(x).code);
    e8p_3_levels(three.code, levels);
    const double found = distance(x, levels, kE8p3Unit);
    EXPECT_NEAR(found, three.error, 1e-4 * (1 + found));
    for (uint32_t second = 0; second < 256; ++second) {
      e8p_3_levels((three.code & 0xffff) | second << 16, levels);
      EXPECT_LE(found, distance(x, levels, kE8p3Unit) + 1e-4);
    }
    e8p_4_levels(four.code, levels);
    EXPECT_NEAR(distance(x, levels, kE8p4Unit), four.error, 1e-4 * (1 + four.error));
    // What is left, 3.5 times as large, is as near as a point can be.
    e8p_values(static_cast<uint16_t>(four.code), quarters);
    float rest[kE8pValues];
    for (int i = 0; i < kE8pValues; ++i) rest[i] = 3.5f * (x[i] - kE8pUnit * static_cast<float>(quarters[i]));
    EXPECT_NEAR(nearest_e8p(rest).error / 12.25, four.error, 1e-4 * (1 + four.error));
  }
}

TEST(E8pResidual, LevelsAreWhatKernelsHold) {
  std::mt19937 engine(2);
  int most_3 = 0, most_4 = 0;
  for (int round = 0; round < 200000; ++round) {
    const auto code = static_cast<uint32_t>(engine());
    int8_t levels[kE8pValues];
    e8p_3_levels(code, levels);
    for (int level : levels) most_3 = std::max(most_3, std::abs(level));
    e8p_4_levels(code, levels);
    for (int level : levels) most_4 = std::max(most_4, std::abs(level));
  }
  EXPECT_LE(most_3, kE8p3Most);
  EXPECT_GE(most_3, 13);
  EXPECT_LE(most_4, kE8p4Most);
  EXPECT_GE(most_4, 95);
}

// At the best scale, 8 and 9 % less than eight and sixteen levels one by one leave at best (0.0345 and 0.0095: Max,
// 1960, "Quantizing for Minimum Distortion").
TEST(E8pResidual, RoundsNormalWeightsBetterThanLevels) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  double three = 0, four = 0;
  constexpr int kPoints = 8000;
  for (int i = 0; i < kPoints; ++i) {
    float x[kE8pValues], y[kE8pValues];
    for (int j = 0; j < kE8pValues; ++j) {
      x[j] = normal(engine) * 0.98f;
      y[j] = x[j] / 0.98f * 0.92f;
    }
    three += nearest_e8p_3(x).error / (0.98 * 0.98);
    four += nearest_e8p_4(y).error / (0.92 * 0.92);
  }
  EXPECT_LT(three / kPoints / kE8pValues, 0.0345 * 0.92);
  EXPECT_LT(four / kPoints / kE8pValues, 0.0095 * 0.95);
}

TEST(E8pResidual, CodesAreStoredOneByOne) {
  std::mt19937 engine(4);
  for (int bits : {3, 4}) {
    std::vector<uint8_t> block(bits == 3 ? kE8p3BlockBytes : kE8p4BlockBytes);
    std::vector<uint32_t> codes(kE8pPoints);
    for (int p = 0; p < kE8pPoints; ++p) {
      codes[static_cast<size_t>(p)] = static_cast<uint32_t>(engine()) & (bits == 3 ? 0xffffffu : 0xffffffffu);
      (bits == 3 ? store_e8p_3 : store_e8p_4)(block.data(), p, codes[static_cast<size_t>(p)]);
    }
    for (int p = 0; p < kE8pPoints; ++p)
      EXPECT_EQ((bits == 3 ? load_e8p_3 : load_e8p_4)(block.data(), p), codes[static_cast<size_t>(p)]);
    EXPECT_EQ(find_format(bits == 3 ? "e8p_3" : "e8p_4")->block_bytes, static_cast<int>(block.size()));
  }
}

}  // namespace
}  // namespace millrace
