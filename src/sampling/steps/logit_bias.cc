// Adds a bias to the logits of given tokens; -inf bans one.
#include <map>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class LogitBias final : public SamplerStep {
 public:
  explicit LogitBias(std::map<TokenId, double> bias) : bias_(std::move(bias)) {}

  void apply(SamplingRow& row) override {
    for (auto [token, bias] : bias_) {
      row.edit(token, [b = bias](float logit) { return static_cast<float>(logit + b); });
    }
  }

  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<LogitBias>(*this); }

 private:
  std::map<TokenId, double> bias_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_logit_bias(const SamplerSetup& setup) {
  if (setup.options.logit_bias.empty()) return nullptr;
  return std::make_unique<LogitBias>(setup.options.logit_bias);
}

}  // namespace millrace
