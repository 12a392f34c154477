// Suppresses the tokens that end a generation: always (ignore_eos), or before min_tokens have been generated.
#include <limits>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class EndOfGeneration final : public SamplerStep {
 public:
  EndOfGeneration(std::vector<TokenId> tokens, int64_t before) : tokens_(std::move(tokens)), before_(before) {}

  void apply(SamplingRow& row) override {
    if (row.position() >= before_) return;
    for (TokenId token : tokens_) {
      row.edit(token, [](float) { return -std::numeric_limits<float>::infinity(); });
    }
  }

  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<EndOfGeneration>(*this); }

 private:
  std::vector<TokenId> tokens_;
  int64_t before_;  // suppressed at positions below this
};

}  // namespace

std::unique_ptr<SamplerStep> make_end_of_generation(const SamplerSetup& setup) {
  if (setup.end_of_generation.empty() || (!setup.ignore_eos && setup.min_tokens <= 0)) return nullptr;
  int64_t before = setup.ignore_eos ? std::numeric_limits<int64_t>::max() : setup.min_tokens;
  return std::make_unique<EndOfGeneration>(setup.end_of_generation, before);
}

}  // namespace millrace
