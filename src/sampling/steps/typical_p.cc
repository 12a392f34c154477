// Locally typical sampling: the tokens whose surprise is nearest to the entropy, up to the mass p (Meister et al.,
// 2023, "Locally Typical Sampling"). Ties go to the lower token id.
#include <algorithm>
#include <cmath>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class TypicalP final : public SamplerStep {
 public:
  explicit TypicalP(double p) : p_(p) {}

  void apply(SamplingRow& row) override {
    auto& list = row.candidates();
    if (list.size() <= 1) return;
    Softmax softmax = row.softmax();
    double log_total = std::log(softmax.total);
    double entropy = 0;
    scored_.clear();
    for (const auto& candidate : list) {
      double surprise = log_total - (candidate.logit - softmax.max);
      double probability = softmax.probability(candidate.logit);
      if (probability > 0) entropy += probability * surprise;
      scored_.push_back({surprise, probability, candidate});
    }
    for (auto& scored : scored_) scored.distance = std::fabs(scored.distance - entropy);
    std::sort(scored_.begin(), scored_.end(), [](const Scored& a, const Scored& b) {
      return a.distance < b.distance || (a.distance == b.distance && a.candidate.token < b.candidate.token);
    });
    list.clear();
    double mass = 0;
    for (const auto& scored : scored_) {
      list.push_back(scored.candidate);
      mass += scored.probability;
      if (mass > p_) break;
    }
    row.set_unsorted();
  }

  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<TypicalP>(*this); }

 private:
  struct Scored {
    double distance;  // | -log p - entropy |
    double probability;
    Candidate candidate;
  };
  double p_;
  std::vector<Scored> scored_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_typical_p(const SamplerSetup& setup) {
  if (!setup.truncates() || setup.options.typical_p >= 1) return nullptr;
  return std::make_unique<TypicalP>(setup.options.typical_p);
}

}  // namespace millrace
