// Typical acceptance (Cai et al., 2024, Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding
// Heads): a drafted token is accepted if the model gives it more than min(epsilon, delta * exp(-H)), where H is the
// entropy of the final distribution in nats. Of several, the likeliest is. Where none is accepted, the token is drawn
// as by plain sampling. Answers no longer follow the model's distribution; greedy ones stay the same, because there the
// final distribution has one token.
#include <cmath>

#include "speculate/acceptance/residual.h"

namespace millrace {
namespace {

class Typical final : public Acceptance {
 public:
  Typical(double epsilon, double delta) : epsilon_(epsilon), delta_(delta) {}
  TokenId choose(SamplingRow& row, std::span<const DraftedToken> drafted, std::vector<double>&) const override {
    const FinalRow final(row);
    double entropy = 0;
    for (size_t i = 0; i < final.size(); ++i)
      if (const double p = final.p(i); p > 0) entropy -= p * std::log(p);
    double best = std::min(epsilon_, delta_ * std::exp(-entropy));
    TokenId chosen = -1;
    for (const DraftedToken& one : drafted) {
      const double p = final.p_of(one.token);
      if (p <= best) continue;
      best = p;
      chosen = one.token;
    }
    return chosen >= 0 ? chosen : draw(row).value();
  }

 private:
  double epsilon_, delta_;
};

}  // namespace

Result<std::unique_ptr<Acceptance>> make_typical_acceptance(const OptionValues& options) {
  return std::unique_ptr<Acceptance>(std::make_unique<Typical>(options.number("epsilon"), options.number("delta")));
}

}  // namespace millrace
