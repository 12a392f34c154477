// Never completes one of these token sequences: bans the last token when the preceding ones have been generated.
#include <algorithm>
#include <limits>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class BadWords final : public SamplerStep {
 public:
  explicit BadWords(std::vector<std::vector<TokenId>> words) : words_(std::move(words)) {
    for (const auto& word : words_) longest_ = std::max(longest_, word.size());
  }

  void apply(SamplingRow& row) override {
    for (const auto& word : words_) {
      const size_t before = word.size() - 1;
      if (before <= past_.size() &&
          std::equal(word.begin(), word.end() - 1, past_.end() - static_cast<ptrdiff_t>(before)))
        row.edit(word.back(), [](float) { return -std::numeric_limits<float>::infinity(); });
    }
  }
  void accept(TokenId token) override {
    past_.push_back(token);
    if (past_.size() > 4 * longest_) past_.erase(past_.begin(), past_.end() - static_cast<ptrdiff_t>(longest_));
  }
  void reset() override { past_.clear(); }
  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<BadWords>(*this); }

 private:
  std::vector<std::vector<TokenId>> words_;
  std::vector<TokenId> past_;  // the last tokens
  size_t longest_ = 1;
};

}  // namespace

std::unique_ptr<SamplerStep> make_bad_words(const SamplerSetup& setup) {
  std::vector<std::vector<TokenId>> words = setup.bad_words;
  std::erase_if(words, [](const auto& word) { return word.empty(); });
  return words.empty() ? nullptr : std::make_unique<BadWords>(std::move(words));
}

}  // namespace millrace
