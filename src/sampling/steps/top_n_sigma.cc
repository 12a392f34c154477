// Top-n-sigma: keeps logits within n standard deviations of the largest one (Tang et al., 2024, "Top-n-sigma: Not All
// Logits Are You Need"). Mean and deviation are over all candidates; no softmax is needed.
#include <cmath>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class TopNSigma final : public SamplerStep {
 public:
  explicit TopNSigma(double n) : n_(n) {}

  void apply(SamplingRow& row) override {
    const auto& list = row.candidates();
    if (list.size() <= 1) return;
    double sum = 0;
    for (const auto& candidate : list) sum += candidate.logit;
    double mean = sum / static_cast<double>(list.size());
    double squares = 0;
    for (const auto& candidate : list) squares += (candidate.logit - mean) * (candidate.logit - mean);
    row.keep_above(row.max_logit() - n_ * std::sqrt(squares / static_cast<double>(list.size())));
  }

  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<TopNSigma>(*this); }

 private:
  double n_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_top_n_sigma(const SamplerSetup& setup) {
  if (!setup.truncates() || setup.options.top_n_sigma <= 0) return nullptr;
  return std::make_unique<TopNSigma>(setup.options.top_n_sigma);
}

}  // namespace millrace
