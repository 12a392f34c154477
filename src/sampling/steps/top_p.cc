// Top-p (nucleus): the smallest set of most likely tokens with mass p (Holtzman et al., 2020, "The Curious Case of
// Neural Text Degeneration").
#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class TopP final : public SamplerStep {
 public:
  explicit TopP(double p) : p_(p) {}

  void apply(SamplingRow& row) override {
    if (row.keep_nucleus(p_)) return;
    auto& list = row.candidates();
    if (list.size() <= 1) return;
    Softmax softmax = row.softmax();
    double mass = 0;
    size_t kept = 0;
    row.visit_sorted([&](size_t i) {
      ++kept;
      mass += softmax.probability(list[i].logit);
      return mass < p_;
    });
    row.truncate(kept);
  }

  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<TopP>(*this); }

 private:
  double p_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_top_p(const SamplerSetup& setup) {
  if (!setup.truncates() || setup.options.top_p >= 1) return nullptr;
  return std::make_unique<TopP>(setup.options.top_p);
}

}  // namespace millrace
