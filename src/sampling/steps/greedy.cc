// The most likely token; ties go to the lowest id.
#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class Greedy final : public SamplerStep {
 public:
  void apply(SamplingRow& row) override { row.keep_argmax(); }
  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<Greedy>(*this); }
};

}  // namespace

std::unique_ptr<SamplerStep> make_greedy(const SamplerSetup& setup) {
  if (!setup.greedy()) return nullptr;
  return std::make_unique<Greedy>();
}

}  // namespace millrace
