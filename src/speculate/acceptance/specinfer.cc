// Multi-step speculative sampling over a token tree (Miao et al., 2024, SpecInfer: Accelerating Large Language Model
// Serving with Tree-based Speculative Inference and Verification): the tokens drafted for a position are tried one
// after the other, each against what the ones before it have left of p.
#include "speculate/acceptance/residual.h"

namespace millrace {
namespace {

class SpecInfer final : public Acceptance {
 public:
  bool needs_odds() const override { return true; }
  TokenId choose(SamplingRow& row, std::span<const DraftedToken> drafted, std::vector<double>& scratch) const override {
    return try_in_turn(row, drafted, scratch);
  }
};

}  // namespace

Result<std::unique_ptr<Acceptance>> make_specinfer_acceptance(const OptionValues&) {
  return std::unique_ptr<Acceptance>(std::make_unique<SpecInfer>());
}

}  // namespace millrace
