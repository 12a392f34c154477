// The codebook of E8P against its definition, point by point, and the search for the nearest point against all of them.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "formats/e8p_block.h"
#include "formats/format.h"

namespace millrace {
namespace {

using Point = std::array<int8_t, kE8pValues>;

std::vector<Point> all_points() {
  std::vector<Point> out(65536);
  for (size_t code = 0; code < out.size(); ++code) e8p_values(static_cast<uint16_t>(code), out[code].data());
  return out;
}

TEST(E8p, CodesAreDistinctPointsOfTheShiftedLattice) {
  const std::vector<Point> points = all_points();
  std::set<Point> distinct;
  for (const Point& point : points) {
    // A point of E8 has only integers or only halves, with an even sum; here in quarters, before the shift by 1/4.
    int sum = 0, integers = 0, halves = 0;
    for (int quarters : point) {
      const int moved = quarters - 1;
      ASSERT_EQ(moved % 2, 0);
      (moved % 4 == 0 ? integers : halves) += 1;
      sum += moved;
    }
    ASSERT_TRUE(integers == kE8pValues || halves == kE8pValues);
    ASSERT_EQ(sum % 8, 0);
    distinct.insert(point);
  }
  EXPECT_EQ(distinct.size(), 65536u);
}

// With a point, its mirror image is in the codebook, so that rounding favours no sign.
TEST(E8p, IsSymmetric) {
  const std::vector<Point> points = all_points();
  const std::set<Point> distinct(points.begin(), points.end());
  for (Point point : points) {
    for (int8_t& value : point) value = static_cast<int8_t>(-value);
    ASSERT_TRUE(distinct.contains(point));
  }
}

TEST(E8p, HasAllPatternsOfNormTenAnd29OfNormTwelve) {
  int small = 0, large = 0;
  std::set<uint16_t> patterns;
  for (int i = 0; i < kE8pPatterns; ++i) {
    const uint16_t digits = e8p_digits(i);
    patterns.insert(digits);
    double norm = 0;
    for (int j = 0; j < kE8pValues; ++j) norm += std::pow((digits >> (2 * j) & 3) + 0.5, 2);
    (norm <= 10 ? small : large) += 1;
    EXPECT_LE(norm, 12) << i;
    if (norm > 10) {
      EXPECT_EQ(std::popcount(digits), 5) << i;
    }
  }
  EXPECT_EQ(patterns.size(), 256u);
  EXPECT_EQ(small, 227);
  EXPECT_EQ(large, 29);
}

// label(once): searches for the nearest of all points by comparing each
TEST(E8p, FindsTheNearestPoint) {
  const std::vector<Point> points = all_points();
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 300; ++i) {
    float x[kE8pValues];
    for (float& value : x) value = normal(engine) * (i % 3 == 0 ? 0.4f : i % 3 == 1 ? 1.0f : 3.0f);
    const auto distance = [&](const Point& point) {
      double sum = 0;
      for (int j = 0; j < kE8pValues; ++j) sum += std::pow(x[j] - 0.25 * point[static_cast<size_t>(j)], 2);
      return sum;
    };
    double least = INFINITY;
    for (const Point& point : points) least = std::min(least, distance(point));
    const E8pChoice choice = nearest_e8p(x);
    EXPECT_NEAR(distance(points[choice.code]), least, 1e-4) << i;
    EXPECT_NEAR(choice.error, least, 1e-4 * (1 + least)) << i;
  }
}

TEST(E8p, PointsAreNearestToThemselves) {
  const std::vector<Point> points = all_points();
  for (size_t code = 0; code < points.size(); ++code) {
    float x[kE8pValues];
    for (size_t j = 0; j < kE8pValues; ++j) x[j] = 0.25f * points[code][j];
    const E8pChoice choice = nearest_e8p(x);
    ASSERT_EQ(choice.code, code);
    ASSERT_LT(choice.error, 1e-5f);
  }
}

// The mean squared error at the best scale is known: 0.0915 for weights of variance 1, where 2-bit levels one by one
// have 0.1175 at best (Max, 1960, "Quantizing for Minimum Distortion").
TEST(E8p, RoundsNormalWeightsBetterThanAnyFourLevels) {
  std::mt19937 engine(2);
  std::normal_distribution<float> normal;
  double sum = 0;
  constexpr int kPoints = 20000;
  for (int i = 0; i < kPoints; ++i) {
    float x[kE8pValues];
    for (float& value : x) value = normal(engine) * 1.03f;
    sum += nearest_e8p(x).error;
  }
  const double error = sum / kPoints / kE8pValues / (1.03 * 1.03);
  EXPECT_GT(error, 0.089);
  EXPECT_LT(error, 0.094);
}

TEST(E8p, UnpacksToTheCodesOfTheKernels) {
  std::vector<uint8_t> block(kE8pBlockBytes);
  std::mt19937 engine(3);
  for (uint8_t& byte : block) byte = static_cast<uint8_t>(engine());
  store_u16(block.data(), 0x3c00);  // 1
  std::vector<float> values(kE8pBlockValues);
  find_format("e8p")->decode(block.data(), values.data(), kE8pBlockValues);
  std::vector<uint8_t> levels(kE8pBlockValues);
  unpack_e8p(block.data(), levels.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_LT(levels[i], 16);
    ASSERT_EQ(values[i], kE8pUnit * static_cast<float>(kE8pCodes[levels[i]])) << i;
    ASSERT_EQ(levels[i] >> 3, levels[i / 8 * 8] >> 3) << i;
  }
}

}  // namespace
}  // namespace millrace
