// Fits recover a known machine from measured steps.
#include "schedule/cost_fit.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/philox.h"

namespace millrace {
namespace {

// A step of the machine: weights are read once, compute-bound above 32 tokens, attention, sampling.
double machine(const StepShape& s) {
  return std::max(0.02, 0.02 + 0.0005 * (static_cast<double>(s.tokens) - 32)) +
         0.0003 * static_cast<double>(s.outputs) + 2e-7 * static_cast<double>(s.keys) + 3e-8 * s.pairs;
}

StepShape draw(uint64_t seed, uint64_t i) {
  StepShape shape;
  const auto decodes = static_cast<int64_t>(philox_uniform(seed, 1, i) * 17);
  for (int64_t n = 0; n < decodes; ++n) shape.add(static_cast<int64_t>(philox_uniform(seed, 2, i) * 2000), 1, true);
  if (i % 3 != 0 || decodes == 0)
    shape.add(static_cast<int64_t>(philox_uniform(seed, 3, i) * 1000),
              1 + static_cast<int64_t>(philox_uniform(seed, 4, i) * 300), true);
  return shape;
}

std::vector<MeasuredStep> measure(uint64_t seed, uint64_t count, double noise) {
  std::vector<MeasuredStep> steps;
  for (uint64_t i = 0; i < count; ++i) {
    const StepShape shape = draw(seed, i);
    const bool disturbed = philox_uniform(seed, 5, i) < 0.05;
    steps.push_back({shape, machine(shape) * (disturbed && noise > 0 ? 3.0 : 1 + noise * philox_uniform(seed, 6, i))});
  }
  return steps;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

TEST(CostFit, RecoversTheMachine) {
  auto text = fit_cost_model(measure(1, 120, 0));
  ASSERT_TRUE(text.ok()) << text.error().message;
  auto cost = parse_cost_model(*text, "fit");
  ASSERT_TRUE(cost.ok()) << cost.error().message;
  const auto errors = cost_errors(**cost, measure(2, 20, 0));
  EXPECT_LT(median(errors), 0.02);
  EXPECT_LT(*std::ranges::max_element(errors), 0.1);
}

TEST(CostFit, IsRobustToNoiseFromOtherProcesses) {
  auto text = fit_cost_model(measure(3, 120, 0.05));
  ASSERT_TRUE(text.ok());
  auto cost = parse_cost_model(*text, "fit");
  EXPECT_LT(median(cost_errors(**cost, measure(4, 40, 0))), 0.06);
}

TEST(CostFit, IsMonotone) {
  auto text = fit_cost_model(measure(5, 60, 0.3));
  ASSERT_TRUE(text.ok());
  auto cost = parse_cost_model(*text, "fit");
  double before = 0;
  for (int64_t tokens = 1; tokens < 1000; tokens += 7) {
    StepShape shape;
    shape.add(0, tokens, true);
    EXPECT_GE((*cost)->step_seconds(shape), before);
    before = (*cost)->step_seconds(shape);
  }
}

TEST(CostFit, SwapSpeedIsWritten) {
  auto text = fit_cost_model(measure(1, 30, 0), {1000, 1e9});
  ASSERT_TRUE(text.ok());
  auto cost = parse_cost_model(*text, "fit");
  EXPECT_NEAR((*cost)->swap_seconds(5000), 0.005, 1e-9);
}

TEST(CostFit, DiskSpeedIsALineThroughMedians) {
  const std::pair<double, double> seen[] = {{1e6, 0.002}, {1e6, 0.9}, {1e6, 0.002}, {1e8, 0.101},
                                            {1e8, 0.101}, {1e8, 3.0}};  // disturbed by another process, twice
  auto disk = fit_disk_speed(seen);
  ASSERT_TRUE(disk.ok());
  EXPECT_NEAR(disk->bytes_per_second, 1e9, 1);
  EXPECT_NEAR(disk->overhead_seconds, 0.001, 1e-9);
  auto text = fit_cost_model(measure(1, 30, 0), {1000, 1e10}, *disk);
  ASSERT_TRUE(text.ok());
  auto cost = parse_cost_model(*text, "fit");
  ASSERT_TRUE(cost.ok());
  EXPECT_NEAR((*cost)->load_seconds(5000), 0.001 + 0.005, 1e-9);
  EXPECT_NEAR((*cost)->swap_seconds(5000), 0.0005, 1e-9);

  const std::pair<double, double> one_size[] = {{1e6, 0.002}}, no_time[] = {{1e6, 0.0}, {2e6, 0.1}},
                                  noise[] = {{1e6, 0.2}, {1e8, 0.1}};
  EXPECT_FALSE(fit_disk_speed(one_size).ok());
  EXPECT_FALSE(fit_disk_speed(no_time).ok());
  ASSERT_TRUE(fit_disk_speed(noise).ok());
  EXPECT_NEAR(fit_disk_speed(noise)->bytes_per_second, 1e9, 1);
}

TEST(CostFit, RejectsInvalidMeasurements) {
  EXPECT_FALSE(fit_cost_model({}).ok());
  auto steps = measure(1, 20, 0);
  steps[7].seconds = 0;
  EXPECT_FALSE(fit_cost_model(steps).ok());
}

}  // namespace
}  // namespace millrace
