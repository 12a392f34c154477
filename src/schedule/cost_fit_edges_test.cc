// Edge cases of fits: knots from few measurements, slow machines, outliers, and disks.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json_library.h"
#include "schedule/cost_fit.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

StepShape fit_shape(int64_t tokens, int64_t outputs = 0, int64_t keys = 0, double pairs = 0) {
  return {tokens, outputs, keys, pairs};
}

Json fitted(const std::vector<MeasuredStep>& steps, const SwapSpeed& swap = {}) {
  auto text = fit_cost_model(steps, swap);
  EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
  return text.ok() ? Json::parse(*text) : Json();
}

TEST(CostFitKnots, StepsOfOneTokenMakeACurveOfTwoPoints) {
  const Json fit = fitted(std::vector<MeasuredStep>(8, {fit_shape(1), 0.5}));
  EXPECT_EQ(fit["tokens"]["at"], (Json{1, 2}));
  EXPECT_EQ(fit["outputs"]["at"], (Json{0, 1}));
  EXPECT_EQ(fit["keys"]["at"], (Json{0, 1, 2}));
  EXPECT_EQ(fit["pairs"]["at"], (Json{0, 1}));
  EXPECT_NEAR(fit["tokens"]["seconds"][0].get<double>(), 0.5, 1e-9);
}

TEST(CostFitKnots, ArePowersUpToTheMaximum) {
  const std::pair<int64_t, Json> cases[] = {
      {2, {1, 2}}, {3, {1, 2, 3}}, {4, {1, 2, 4}}, {5, {1, 2, 4, 5}}, {64, {1, 2, 4, 8, 16, 32, 64}}};
  for (const auto& [most, at] : cases)
    EXPECT_EQ(fitted(std::vector<MeasuredStep>(8, {fit_shape(most), 0.5}))["tokens"]["at"], at);
  const std::pair<int64_t, Json> outputs[] = {
      {1, {0, 1}}, {4, {0, 4}}, {5, {0, 4, 5}}, {16, {0, 4, 16}}, {17, {0, 4, 16, 17}}};
  for (const auto& [most, at] : outputs)
    EXPECT_EQ(fitted(std::vector<MeasuredStep>(8, {fit_shape(20, most), 0.5}))["outputs"]["at"], at);
}

// For odd and even numbers of pieces per curve, the fit reproduces each step.
TEST(CostFitKnots, AnyNumberOfKnotsFits) {
  for (int64_t most : {1, 2, 4, 8, 16}) {
    std::vector<MeasuredStep> steps;
    for (int64_t i = 0; i < 40; ++i) {
      const int64_t tokens = 1 + i * most / 40;
      steps.push_back({fit_shape(tokens, i % 2, i * 37 % 101 * 10, static_cast<double>(i * 53 % 97)), 0});
      steps.back().seconds = 0.01 + 0.001 * static_cast<double>(tokens) + 0.002 * static_cast<double>(i % 2);
    }
    const auto cost = parse_cost_model(*fit_cost_model(steps), "fit");
    ASSERT_TRUE(cost.ok());
    for (const double error : cost_errors(**cost, steps)) ASSERT_LT(error, 1e-3) << most;
  }
}

TEST(CostFitSolution, RecoversSlowSteps) {
  std::vector<MeasuredStep> steps;
  for (int64_t i = 0; i < 16; ++i) steps.push_back({fit_shape(1 + i % 2), i % 2 == 0 ? 100.0 : 300.0});
  const Json fit = fitted(steps);
  EXPECT_NEAR(fit["tokens"]["seconds"][0].get<double>(), 100, 1e-6);
  EXPECT_NEAR(fit["tokens"]["seconds"][1].get<double>(), 300, 1e-6);
}

TEST(CostFitSolution, SingleStepPredictsLargeSteps) {
  std::vector<MeasuredStep> steps = {{fit_shape(8), 0.9}};
  for (int i = 0; i < 14; ++i) steps.push_back({fit_shape(1 + i % 2), 0.1});
  const auto cost = parse_cost_model(*fit_cost_model(steps), "fit");
  ASSERT_TRUE(cost.ok());
  EXPECT_NEAR((*cost)->step_seconds(fit_shape(8)), 0.9, 1e-6);
}

// Steps that differ only in their time: the fit is one number, the weighted mean in which an error e above 0.05 has
// weight 0.05 / e, iterated six times.
TEST(CostFitSolution, OutliersLoseWeightEachRound) {
  for (const std::vector<double>& times :
       {std::vector<double>{2, 1, 1, 1, 1, 1, 1, 1.5}, {0.7, 1, 1.1, 1.2, 1.3, 1.5, 1.9, 4}}) {
    std::vector<MeasuredStep> steps;
    for (const double seconds : times) steps.push_back({fit_shape(1), seconds});
    std::vector<double> weights(times.size(), 1);
    double expected = 0;
    for (int round = 0; round < 6; ++round) {
      double above = 0, below = 0;
      for (size_t i = 0; i < times.size(); ++i)
        above += weights[i] / times[i], below += weights[i] / (times[i] * times[i]);
      expected = above / below;
      for (size_t i = 0; i < times.size(); ++i) weights[i] = std::min(1.0, 0.05 / std::fabs(expected / times[i] - 1));
    }
    EXPECT_NEAR(fitted(steps)["tokens"]["seconds"][0].get<double>(), expected, 1e-8);
  }
}

TEST(CostFitText, IsReadable) {
  const std::vector<MeasuredStep> steps(8, {fit_shape(1), 0.5});
  EXPECT_TRUE(fit_cost_model(steps)->starts_with("{\n \"kind\": \"piecewise\",\n \"tokens\": {\n  \"at\": ["));
  EXPECT_EQ(fitted(steps, {0.5, 1e9})["kv_bytes_per_token"], 0.5);
  EXPECT_EQ(fitted(steps, {1, 1e9})["kv_bytes_per_token"], 1);
}

using Loads = std::vector<std::pair<double, double>>;

TEST(DiskFit, ValidMeasurements) {
  EXPECT_TRUE(fit_disk_speed(Loads{{1, 0.1}, {2, 99999}}).ok());
  EXPECT_TRUE(fit_disk_speed(Loads{{0.5, 0.1}, {2, 0.2}}).ok());
  const std::pair<Loads, const char*> bad[] = {
      {{{0, 0.1}, {2, 0.2}}, "disk: 0 bytes took 0.1 s"},
      {{{-1, 0.1}, {2, 0.2}}, "disk: -1 bytes took 0.1 s"},
      {{{1, 0}, {2, 0.2}}, "disk: 1 bytes took 0 s"},
      {{{1, 0.1}, {2, 1e5}}, "disk: 2 bytes took 100000 s"},
      {{{1, 0.1}, {1, 0.2}}, "disk: loads of at least two sizes must be measured"}};
  for (const auto& [loads, message] : bad) EXPECT_EQ(fit_disk_speed(loads).error().message, message);
}

TEST(DiskFit, UsesTheMedianOfFive) {
  const auto disk = fit_disk_speed(Loads{{100, 9},
                                         {100, 3},
                                         {100, 1},
                                         {100, 2},
                                         {100, 8},
                                         {500, 90},
                                         {500, 5},
                                         {500, 11},
                                         {500, 7},
                                         {500, 12},
                                         {300, 77}});
  ASSERT_TRUE(disk.ok());
  EXPECT_DOUBLE_EQ(disk->bytes_per_second, 400 / 8.0);
  EXPECT_DOUBLE_EQ(disk->overhead_seconds, 1);
}

TEST(DiskFit, UsesOnlyTheSpeedOfLargeReadsIfTheyAreNoSlower) {
  for (const double few : {2.0, 3.0}) {
    const auto disk = fit_disk_speed(Loads{{100, few}, {500, 2}});
    ASSERT_TRUE(disk.ok());
    EXPECT_DOUBLE_EQ(disk->bytes_per_second, 250);
    EXPECT_EQ(disk->overhead_seconds, 0);
  }
}

}  // namespace
}  // namespace millrace
