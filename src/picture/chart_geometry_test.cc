// Scales, ticks and the places of names.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "picture/axis_scale.h"
#include "picture/label_placement.h"
#include "picture/palette.h"

namespace millrace {
namespace {

AxisScale linear(double low, double high) { return {.low = low, .high = high, .from = 0, .to = 100}; }

AxisScale logarithmic(double low, double high) {
  return {.low = std::log10(low), .high = std::log10(high), .from = 0, .to = 100, .log = true};
}

TEST(AxisTicks, AreAtOneTwoAndFive) {
  EXPECT_EQ(axis_ticks(linear(0, 10), 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(linear(0, 10), 4), (std::vector<double>{0, 5, 10}));
  EXPECT_EQ(axis_ticks(linear(3, 97), 6), (std::vector<double>{20, 40, 60, 80}));
  EXPECT_EQ(axis_ticks(linear(-1, 1), 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  for (const double span : {1e-9, 0.037, 1.0, 7.3, 1234.5, 1e12})
    for (const int count : {2, 5, 9}) {
      const auto ticks = axis_ticks(linear(0.1 * span, 1.1 * span), count);
      EXPECT_LE(ticks.size(), static_cast<size_t>(count) + 1);
      for (const double tick : ticks) {
        EXPECT_GE(tick, 0.1 * span * (1 - 1e-9));
        EXPECT_LE(tick, 1.1 * span * (1 + 1e-9));
      }
    }
}

TEST(AxisTicks, OnLogarithmicAxes) {
  EXPECT_EQ(axis_ticks(logarithmic(1, 100), 8), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(axis_ticks(logarithmic(1, 1000), 5), (std::vector<double>{1, 10, 100, 1000}));
  const auto narrow = axis_ticks(logarithmic(400, 900), 5);  // less than a decade: round values
  EXPECT_EQ(narrow, (std::vector<double>{400, 500, 600, 700, 800, 900}));
  EXPECT_LE(axis_ticks(logarithmic(1e-200, 1e200), 6).size(), 8u);
}

TEST(AxisTicks, TextsHaveTheSameDecimals) {
  const auto texts = [](const AxisScale& scale, std::vector<double> ticks) { return tick_texts(scale, ticks); };
  EXPECT_EQ(texts(linear(0, 2), {0, 0.5, 1}), (std::vector<std::string>{"0.0", "0.5", "1.0"}));
  EXPECT_EQ(texts(linear(0, 1e-5), {-0.0, 5e-6}), (std::vector<std::string>{"0", "5e-06"}));
  EXPECT_EQ(texts(linear(0, 40), {0, 20, 40}), (std::vector<std::string>{"0", "20", "40"}));
  EXPECT_EQ(texts(linear(0, 4e4), {0, 2e4, 4e4}), (std::vector<std::string>{"0", "20k", "40k"}));
  EXPECT_EQ(texts(linear(0, 1e6), {0, 5e5, 1e6}), (std::vector<std::string>{"0.0", "0.5M", "1.0M"}));
  EXPECT_EQ(texts(logarithmic(0.1, 1000), {0.1, 1, 10, 1000}), (std::vector<std::string>{"0.1", "1", "10", "1000"}));
}

TEST(AxisScales, CoverTheirValues) {
  AxisSpan span;
  for (const double value : {3.0, 5.0, std::numeric_limits<double>::quiet_NaN(), 1e300}) span.add(value);
  const AxisScale scale = make_axis_scale({}, span, 0.1, 0, 100);
  EXPECT_FALSE(scale.log);
  EXPECT_DOUBLE_EQ(scale.low, 2.8);
  EXPECT_DOUBLE_EQ(scale.high, 5.2);
  EXPECT_DOUBLE_EQ(scale.at(4), 50);
  EXPECT_DOUBLE_EQ(scale.at(1e9), 100);  // clipped
  const AxisScale zero = make_axis_scale({.from_zero = true}, span, 0.1, 0, 100);
  EXPECT_DOUBLE_EQ(zero.low, 0);
  AxisSpan wide;
  for (const double value : {1.0, 1000.0}) wide.add(value);
  EXPECT_TRUE(make_axis_scale({}, wide, 0, 0, 1).log);
  EXPECT_FALSE(make_axis_scale({.scaling = AxisScaling::linear}, wide, 0, 0, 1).log);
  EXPECT_NEAR(make_axis_scale({}, wide, 0, 0, 90).at(10), 30, 1e-9);
  const AxisScale turned = make_axis_scale({.better = BetterEnd::low, .better_at_top = true}, span, 0, 100, 0);
  EXPECT_DOUBLE_EQ(turned.at(3), 0);  // the better value is at the top, where y is 0
  AxisSpan nothing;
  nothing.add(0);
  EXPECT_DOUBLE_EQ(make_axis_scale({.from_zero = true}, nothing, 0, 0, 1).high, 2);  // no tiny numbers at the ticks
  AxisSpan one;
  one.add(7);
  const AxisScale single = make_axis_scale({}, one, 0.1, 0, 100);
  EXPECT_NEAR(single.at(7), 50, 1e-9);
  EXPECT_FALSE(make_axis_scale({.scaling = AxisScaling::logarithmic}, {}, 0, 0, 1).log);
}

PlacedBox mark_of(const NamedPoint& p, double radius) {
  return {p.x - radius, p.y - radius, p.x + radius, p.y + radius};
}

TEST(Names, NeverOverlapAndStayInside) {
  std::mt19937 random(7);
  const PlacedBox frame{0, 0, 500, 300};
  size_t placed = 0, left_out = 0, leaders = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<NamedPoint> points;
    const size_t count = 2 + random() % 30;
    for (size_t i = 0; i < count; ++i)
      points.push_back({static_cast<double>(random() % 501), static_cast<double>(random() % 301),
                        20.0 + static_cast<double>(random() % 150), 15});
    if (round % 3 == 0)  // all at about the same place
      for (NamedPoint& p : points) p.x = 240 + p.x / 50, p.y = 140 + p.y / 50;
    const std::vector<PlacedSegment> lines = {{0, 150, 500, 150}, {250, 0, 250, 300}};
    const auto names = place_names(frame, points, 5, lines);
    ASSERT_EQ(names.size(), points.size());
    for (size_t i = 0; i < names.size(); ++i) {
      if (!names[i]) {
        ++left_out;
        continue;
      }
      ++placed;
      leaders += names[i]->leader.has_value();
      EXPECT_TRUE(frame.contains(names[i]->box));
      EXPECT_NEAR(names[i]->box.right - names[i]->box.left, points[i].width, 1e-9);
      for (size_t j = 0; j < names.size(); ++j) {
        EXPECT_FALSE(names[i]->box.overlaps(mark_of(points[j], 5))) << round << " " << i << " " << j;
        const bool overlaps = j != i && names[j] && names[i]->box.overlaps(names[j]->box);
        EXPECT_FALSE(overlaps) << round << " " << i << " " << j;
      }
    }
  }
  EXPECT_GT(placed, 3 * left_out);
  EXPECT_GT(leaders, 0u);
}

TEST(Names, AreNextToALonelyPoint) {
  const auto names = place_names({0, 0, 400, 200}, std::vector<NamedPoint>{{100, 100, 60, 14}}, 5, {});
  ASSERT_TRUE(names[0].has_value());
  EXPECT_FALSE(names[0]->leader.has_value());
  EXPECT_NEAR(names[0]->box.left, 108, 1e-9);  // to the right of it
  EXPECT_NEAR(names[0]->box.top, 93, 1e-9);
  EXPECT_FALSE(place_names({0, 0, 40, 200}, std::vector<NamedPoint>{{20, 100, 60, 14}}, 5, {})[0].has_value());
}

TEST(Palettes, SignsDiffer) {
  std::set<std::vector<double>> seen;
  for (int sign = 0; sign < 40; ++sign) {
    const Colour colour = series_colour(kLightPalette, sign);
    std::vector<double> look = {1.0 * colour.r, 1.0 * colour.g, 1.0 * colour.b};
    const auto dashes = series_dashes(sign);
    look.insert(look.end(), dashes.begin(), dashes.end());
    EXPECT_TRUE(seen.insert(look).second) << sign;
  }
}

TEST(Names, RowsAreSpread) {
  EXPECT_EQ(spread_rows(std::vector<double>{50, 50, 10}, 10, 0, 100), (std::vector<double>{50, 60, 10}));
  EXPECT_EQ(spread_rows(std::vector<double>{98, 99}, 10, 0, 100), (std::vector<double>{85, 95}));
  const auto crowded = spread_rows(std::vector<double>(50, 3), 10, 0, 100);  // they share the space
  for (size_t i = 1; i < crowded.size(); ++i) EXPECT_NEAR(crowded[i] - crowded[i - 1], 2, 1e-9);
  EXPECT_TRUE(spread_rows({}, 10, 0, 100).empty());
}

}  // namespace
}  // namespace millrace
