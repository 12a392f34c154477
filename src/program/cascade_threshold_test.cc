// The threshold of a cascade against all thresholds.
#include "program/cascade_threshold.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace millrace {
namespace {

TEST(CascadeThreshold, FindsWhereTheSmallModelIsRight) {
  // Right above 0.8, wrong below.
  std::vector<CascadeSample> samples;
  for (int i = 0; i < 100; ++i) {
    const double confidence = 0.5 + 0.005 * i;
    samples.push_back({confidence, confidence > 0.8 ? 1.0 : 0.0, 1, 1, 5});
  }
  const CascadeChoice found = learn_threshold(samples, 0);
  EXPECT_GT(found.threshold, 0.8);
  EXPECT_LT(found.threshold, 0.81);
  EXPECT_EQ(found.score, 1);
  EXPECT_NEAR(found.asked, 0.61, 1e-9);
  EXPECT_NEAR(found.cost, 1 + 5 * 0.61, 1e-9);
  // A tenth of the answers may be wrong: fewer questions are asked again.
  EXPECT_NEAR(learn_threshold(samples, 0.1).asked, 0.51, 1e-9);
}

TEST(CascadeThreshold, AsksAlwaysOrNeverWhereNothingElseHelps) {
  const std::vector<CascadeSample> useless = {{0.99, 0, 1, 1, 5}, {0.98, 0, 1, 1, 5}};
  EXPECT_EQ(learn_threshold(useless, 0).asked, 1);
  const std::vector<CascadeSample> better = {{0.2, 1, 1, 1, 5}, {0.1, 1, 0, 1, 5}};
  EXPECT_EQ(learn_threshold(better, 0).asked, 0);
  EXPECT_EQ(learn_threshold(better, 0).threshold, 0);
}

TEST(CascadeThreshold, NoOtherThresholdIsCheaper) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> unit;
  for (int round = 0; round < 20; ++round) {
    std::vector<CascadeSample> samples;
    for (int i = 0; i < 30; ++i) {
      const double confidence = unit(random);
      samples.push_back({confidence, unit(random) < confidence ? 1.0 : 0.0, unit(random) < 0.9 ? 1.0 : 0.0, 1, 3});
    }
    const double large = cascade_with(samples, 2).score;
    for (const double loss : {0.0, 0.05}) {
      const CascadeChoice found = learn_threshold(samples, loss);
      EXPECT_GE(found.score, large - loss - 1e-9);
      for (int step = 0; step <= 1000; ++step) {
        const CascadeChoice other = cascade_with(samples, step * 1e-3);
        if (other.score >= large - loss) {
          EXPECT_GE(other.cost, found.cost - 1e-12);
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
