// Tokens that are never sampled.
#include <limits>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class BannedTokens final : public SamplerStep {
 public:
  explicit BannedTokens(std::vector<TokenId> tokens) : tokens_(std::move(tokens)) {}

  void apply(SamplingRow& row) override {
    for (TokenId token : tokens_) {
      row.edit(token, [](float) { return -std::numeric_limits<float>::infinity(); });
    }
  }

  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<BannedTokens>(*this); }

 private:
  std::vector<TokenId> tokens_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_banned_tokens(const SamplerSetup& setup) {
  if (setup.options.banned_tokens.empty()) return nullptr;
  return std::make_unique<BannedTokens>(setup.options.banned_tokens);
}

}  // namespace millrace
