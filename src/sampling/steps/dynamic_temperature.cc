// Dynamic temperature: between t - range and t + range, by the entropy of the candidates relative to its maximum
// log(n), raised to an exponent (kalomaze, 2023, "Dynamic Temperature Sampling"). Confident predictions stay sharp,
// uncertain ones vary.
#include <algorithm>
#include <cmath>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class DynamicTemperature final : public SamplerStep {
 public:
  DynamicTemperature(double temperature, double range, double exponent)
      : low_(std::max(0.0, temperature - range)), high_(temperature + range), exponent_(exponent) {}

  void apply(SamplingRow& row) override {
    const auto& list = row.candidates();
    if (list.size() <= 1) return;
    Softmax softmax = row.softmax();
    double entropy = 0;
    for (const auto& candidate : list) {
      double p = softmax.probability(candidate.logit);
      if (p > 0) entropy -= p * std::log(p);
    }
    double relative = std::clamp(entropy / std::log(static_cast<double>(list.size())), 0.0, 1.0);
    double temperature = low_ + (high_ - low_) * std::pow(relative, exponent_);
    if (temperature > 0) {
      row.scale(temperature);
    } else {
      row.keep_argmax();
    }
  }

  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<DynamicTemperature>(*this); }

 private:
  double low_, high_, exponent_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_dynamic_temperature(const SamplerSetup& setup) {
  const auto& o = setup.options;
  if (setup.greedy() || o.dynamic_temperature_range <= 0) return nullptr;
  return std::make_unique<DynamicTemperature>(o.temperature, o.dynamic_temperature_range,
                                              o.dynamic_temperature_exponent);
}

}  // namespace millrace
