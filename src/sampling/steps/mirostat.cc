// Mirostat v2: cuts off tokens whose surprise -log2 p exceeds mu, and adjusts mu so that the surprise of the sampled
// tokens averages tau bits (Basu et al., 2021, "Mirostat: A Neural Text Decoding Algorithm that Directly Controls
// Perplexity"). mu starts at 2 tau; after each token, mu -= eta * (surprise among the remaining tokens - tau).
#include <algorithm>
#include <cmath>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class Mirostat final : public SamplerStep {
 public:
  Mirostat(double tau, double eta) : tau_(tau), eta_(eta), mu_(2 * tau) {}

  void apply(SamplingRow& row) override {
    if (row.candidates().empty()) return;
    Softmax all = row.softmax();
    double lowest = all.max + std::log(all.total) - mu_ * std::log(2.0);  // logit at which the surprise is mu
    if (lowest > row.max_logit()) {
      row.keep_argmax();
    } else {
      row.keep_above(lowest);
    }
    left_ = row.candidates();
    softmax_ = row.softmax();
    pending_ = true;
  }

  void accept(TokenId token) override {
    if (!pending_) return;  // a prompt token
    pending_ = false;
    for (const auto& candidate : left_) {
      if (candidate.token != token) continue;
      double surprise = -std::log2(std::max(softmax_.probability(candidate.logit), 0x1p-1000));
      mu_ -= eta_ * (surprise - tau_);
      return;
    }
  }

  void reset() override {
    mu_ = 2 * tau_;
    pending_ = false;
  }

  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<Mirostat>(*this); }

 private:
  double tau_, eta_, mu_;
  bool pending_ = false;         // apply() has run and its token is not known yet
  std::vector<Candidate> left_;  // candidates that remained after the last apply()
  Softmax softmax_;              // of left_
};

}  // namespace

std::unique_ptr<SamplerStep> make_mirostat(const SamplerSetup& setup) {
  if (setup.greedy() || setup.options.mirostat != 2) return nullptr;
  return std::make_unique<Mirostat>(setup.options.mirostat_tau, setup.options.mirostat_eta);
}

}  // namespace millrace
