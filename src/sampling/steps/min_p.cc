// Min-p: tokens at least p times as likely as the most likely one (Nguyen et al., 2024, "Turning Up the Heat: Min-p
// Sampling for Creative and Coherent LLM Outputs"). A ratio of probabilities is a difference of logits: no softmax is
// needed.
#include <cmath>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class MinP final : public SamplerStep {
 public:
  explicit MinP(double p) : log_p_(std::log(p)) {}

  void apply(SamplingRow& row) override { row.keep_above(row.max_logit() + log_p_); }
  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<MinP>(*this); }

 private:
  double log_p_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_min_p(const SamplerSetup& setup) {
  if (!setup.truncates() || setup.options.min_p <= 0) return nullptr;
  return std::make_unique<MinP>(setup.options.min_p);
}

}  // namespace millrace
