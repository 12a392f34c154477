// XTC, exclude top choices (p-e-w, 2024): with some probability, removes all tokens at or above the threshold except
// the least likely of them, so that another good continuation replaces the obvious one.
#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class Xtc final : public SamplerStep {
 public:
  Xtc(double probability, double threshold) : probability_(probability), threshold_(threshold) {}

  void apply(SamplingRow& row) override {
    auto& list = row.candidates();
    if (list.size() <= 1 || row.uniform(RandomStream::xtc) >= probability_) return;
    Softmax softmax = row.softmax();
    size_t above = 0;
    row.visit_sorted([&](size_t i) {
      if (softmax.probability(list[i].logit) < threshold_) return false;
      ++above;
      return true;
    });
    if (above > 1) row.drop_front(above - 1);
  }

  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<Xtc>(*this); }

 private:
  double probability_;
  double threshold_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_xtc(const SamplerSetup& setup) {
  const auto& o = setup.options;
  if (!setup.truncates() || o.xtc_probability <= 0 || o.xtc_threshold > 0.5)
    return nullptr;  // two probabilities cannot both exceed a half
  return std::make_unique<Xtc>(o.xtc_probability, o.xtc_threshold);
}

}  // namespace millrace
