// Dynamic temperature against a plain computation of the entropy and of the scaled logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

std::vector<float> scaled(double temperature, double range, double exponent, std::vector<float> logits) {
  SamplerSetup setup;
  setup.options.temperature = temperature;
  setup.options.dynamic_temperature_range = range;
  setup.options.dynamic_temperature_exponent = exponent;
  const auto step = make_dynamic_temperature(setup);
  SamplingRow row;
  row.begin(logits, 0, 0);
  step->apply(row);
  std::vector<float> out;
  for (const Candidate& candidate : row.candidates()) out.push_back(candidate.logit);
  return out;
}

std::vector<float> plain(double temperature, double range, double exponent, const std::vector<float>& logits) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double total = 0, entropy = 0;
  for (float logit : logits) total += std::exp(logit - best);
  for (float logit : logits) {
    const double p = std::exp(logit - best) / total;
    if (p > 0) entropy -= p * std::log(p);
  }
  const double low = std::max(0.0, temperature - range);
  const double t = low + (temperature + range - low) * std::pow(entropy / std::log(logits.size()), exponent);
  std::vector<float> out;
  for (float logit : logits) out.push_back(static_cast<float>((logit - best) / t));
  return out;
}

TEST(DynamicTemperature, FollowsTheEntropy) {
  const std::vector<float> rows[] = {{2, 1}, {0, 0}, {5, 4, 0}, {1, -3, 2, 2, 0.5f}, {7, -2000, 6}, {3, 2.9f, 3.1f, 3}};
  for (const auto& logits : rows) {
    for (auto [temperature, range, exponent] :
         {std::tuple{0.8, 0.5, 1.0}, {0.4, 0.3, 2.0}, {0.3, 0.6, 0.5}, {3.0, 1.0, 1.0}}) {
      const auto expected = plain(temperature, range, exponent, logits);
      const auto out = scaled(temperature, range, exponent, logits);
      ASSERT_EQ(out.size(), expected.size());
      for (size_t i = 0; i < out.size(); ++i)
        EXPECT_NEAR(out[i], expected[i], 1e-6 + 1e-6 * std::fabs(expected[i])) << temperature << ' ' << i;
    }
  }
}

TEST(DynamicTemperature, TemperatureZeroIsGreedy) {
  EXPECT_EQ(scaled(0.5, 0.5, 1, {0, -2000, -2000}), (std::vector<float>{0}));
}

TEST(DynamicTemperature, LeavesASingleCandidateUnchanged) {
  for (double exponent : {0.0, 1.0}) EXPECT_EQ(scaled(0.5, 0.2, exponent, {5}), (std::vector<float>{5})) << exponent;
}

}  // namespace
}  // namespace millrace
