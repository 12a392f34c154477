// Temperature: logits divided by t (Ackley et al., 1985, "A Learning Algorithm for Boltzmann Machines"). Logits are
// shifted so that the largest is 0, which changes no probability and prevents overflow.
#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class Temperature final : public SamplerStep {
 public:
  explicit Temperature(double temperature) : temperature_(temperature) {}

  void apply(SamplingRow& row) override { row.scale(temperature_); }
  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<Temperature>(*this); }

 private:
  double temperature_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_temperature(const SamplerSetup& setup) {
  const auto& o = setup.options;
  if (setup.greedy() || o.temperature == 1 || o.dynamic_temperature_range > 0) return nullptr;
  return std::make_unique<Temperature>(o.temperature);
}

}  // namespace millrace
