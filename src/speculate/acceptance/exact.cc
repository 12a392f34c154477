// Keeps a drafted token while it is the one that plain sampling draws at its position. Since the random numbers are a
// function of seed and position, the answer is the plain one, bit for bit, at any temperature; where the draw is greedy
// this is the rule of blockwise parallel decoding (Stern et al., 2018).
#include "speculate/acceptance/factories.h"

namespace millrace {
namespace {

class Exact final : public Acceptance {
 public:
  bool exact() const override { return true; }
  TokenId choose(SamplingRow& row, std::span<const DraftedToken>, std::vector<double>&) const override {
    return draw(row).value();
  }
};

}  // namespace

Result<std::unique_ptr<Acceptance>> make_exact_acceptance(const OptionValues&) {
  return std::unique_ptr<Acceptance>(std::make_unique<Exact>());
}

}  // namespace millrace
