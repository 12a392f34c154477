// Penalties for tokens that occurred among the last penalty_window tokens.
//   repetition  logit / r where positive, logit * r where not (Keskar et al., 2019, "CTRL")
//   frequency   logit - f * occurrences, presence  logit - p (OpenAI's API reference)
#include <cmath>
#include <deque>
#include <unordered_map>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class Penalties final : public SamplerStep {
 public:
  explicit Penalties(const SamplingOptions& options)
      : repetition_(options.repetition_penalty),
        frequency_(options.frequency_penalty),
        presence_(options.presence_penalty),
        window_(options.penalty_window) {}

  void apply(SamplingRow& row) override {
    for (auto [token, count] : counts_) {  // tokens are independent, so their order does not matter
      row.edit(token, [&, n = count](float logit) {
        double changed = logit > 0 ? logit / repetition_ : logit * repetition_;
        return static_cast<float>(changed - static_cast<double>(n) * frequency_ - presence_);
      });
    }
  }

  void accept(TokenId token) override {
    ++counts_[token];
    if (window_ < 0) return;
    recent_.push_back(token);
    if (static_cast<int64_t>(recent_.size()) <= window_) return;
    auto oldest = counts_.find(recent_.front());
    recent_.pop_front();
    if (--oldest->second == 0) counts_.erase(oldest);
  }

  void reset() override {
    counts_.clear();
    recent_.clear();
  }

  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<Penalties>(*this); }

 private:
  double repetition_, frequency_, presence_;
  int64_t window_;  // -1: all
  std::unordered_map<TokenId, int64_t> counts_;
  std::deque<TokenId> recent_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_penalties(const SamplerSetup& setup) {
  const auto& o = setup.options;
  bool neutral = o.repetition_penalty == 1.0 && o.frequency_penalty == 0 && o.presence_penalty == 0;
  if (neutral || o.penalty_window == 0) return nullptr;
  return std::make_unique<Penalties>(o);
}

}  // namespace millrace
