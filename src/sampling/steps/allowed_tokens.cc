// Only these tokens may be sampled.
#include <algorithm>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class AllowedTokens final : public SamplerStep {
 public:
  explicit AllowedTokens(std::vector<TokenId> tokens) : tokens_(std::move(tokens)) {
    std::sort(tokens_.begin(), tokens_.end());
    tokens_.erase(std::unique(tokens_.begin(), tokens_.end()), tokens_.end());
  }

  void apply(SamplingRow& row) override { row.keep_tokens(tokens_); }
  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<AllowedTokens>(*this); }

 private:
  std::vector<TokenId> tokens_;  // ascending, no duplicates
};

}  // namespace

std::unique_ptr<SamplerStep> make_allowed_tokens(const SamplerSetup& setup) {
  if (setup.options.allowed_tokens.empty()) return nullptr;
  return std::make_unique<AllowedTokens>(setup.options.allowed_tokens);
}

}  // namespace millrace
