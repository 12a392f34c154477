// Speculative sampling (Leviathan, Kalman and Matias, 2023, Fast Inference from Transformers via Speculative Decoding;
// Chen et al., 2023, Accelerating Large Language Model Decoding with Speculative Sampling): a drafted token x is
// accepted with probability min(1, p(x) / q(x)), else the token is drawn from norm(max(0, p - q)). So the token has
// distribution p, and is the drafted one with probability sum of min(p, q), the most that any rule reaches with one
// draft. Of a tree it tries the first branch.
#include "speculate/acceptance/residual.h"

namespace millrace {
namespace {

class Sampling final : public Acceptance {
 public:
  bool needs_odds() const override { return true; }
  TokenId choose(SamplingRow& row, std::span<const DraftedToken> drafted, std::vector<double>& scratch) const override {
    return try_in_turn(row, drafted.first(1), scratch);
  }
};

}  // namespace

Result<std::unique_ptr<Acceptance>> make_sampling_acceptance(const OptionValues&) {
  return std::unique_ptr<Acceptance>(std::make_unique<Sampling>());
}

}  // namespace millrace
