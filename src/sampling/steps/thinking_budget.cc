// Enforces the thinking budget: once it is used up, the closing tag is forced. Tags are matched in the text, because a
// model may spell them with other tokens than the tokenizer would.
#include <algorithm>
#include <string>

#include "sampling/steps/factories.h"
#include "text/tokenizer.h"

namespace millrace {
namespace {

class ThinkingBudgetStep final : public SamplerStep {
 public:
  ThinkingBudgetStep(const ThinkingBudget& budget, const Tokenizer& tokenizer)
      : budget_(budget),
        tokenizer_(&tokenizer),
        close_(tokenizer.encode(budget.close, {.add_special = false, .parse_special = true})) {
    reset();
  }

  void apply(SamplingRow& row) override {
    started_ = true;
    if (place_ != Place::inside || tokens_ < budget_.tokens || forced_ == close_.size()) return;
    const TokenId next = close_[forced_];
    row.force(next);
  }

  void accept(TokenId token) override {
    if (!started_ || place_ == Place::behind) return;  // a prompt token, or thinking has ended
    if (place_ == Place::inside && tokens_++ >= budget_.tokens) ++forced_;
    const std::string& mark = place_ == Place::inside ? budget_.close : budget_.open;
    text_ += tokenizer_->piece(token);
    const bool calls =
        place_ == Place::inside && !budget_.call.empty() && text_.find(budget_.call) != std::string::npos;
    if (calls || text_.find(mark) != std::string::npos) {
      place_ = place_ == Place::inside ? Place::behind : Place::inside;
      text_.clear();
    } else if (const size_t most = std::max(mark.size(), budget_.call.size()); text_.size() > most) {
      text_.erase(0, text_.size() - most);
    }
    if (forced_ == close_.size()) place_ = Place::behind;
  }

  void reset() override {
    place_ = budget_.begun ? Place::inside : Place::before;
    started_ = false;
    tokens_ = 0;
    forced_ = 0;
    text_.clear();
  }
  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<ThinkingBudgetStep>(*this); }

 private:
  enum class Place { before, inside, behind };

  ThinkingBudget budget_;
  const Tokenizer* tokenizer_;
  std::vector<TokenId> close_;
  Place place_ = Place::before;
  bool started_ = false;  // the prompt's tokens come before the first apply()
  int64_t tokens_ = 0;    // inside the tags
  size_t forced_ = 0;     // number of tokens of the closing tag that were forced
  std::string text_;      // tail of the generated text, in which a tag may begin
};

}  // namespace

std::unique_ptr<SamplerStep> make_thinking_budget(const SamplerSetup& setup) {
  const ThinkingBudget& budget = setup.thinking;
  if (budget.tokens < 0 || budget.close.empty() || !setup.tokenizer) return nullptr;
  return std::make_unique<ThinkingBudgetStep>(budget, *setup.tokenizer);
}

}  // namespace millrace
