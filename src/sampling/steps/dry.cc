// DRY ("don't repeat yourself", p-e-w, 2024): a token that would continue a sequence which already occurred is
// penalised by multiplier * base^(length - allowed_length), where length is that of the longest suffix of the history
// that also preceded an earlier occurrence of the token. Sequences do not extend across a breaker, and a breaker itself
// is never penalised.
//
//   history   a b c X ... a b c | ?        suffix "a b c" occurred before, followed by X: X is penalised, length 3
//
// Matching is linear in the window: the Z-function of the reversed history gives, for each earlier end, the length of
// the common suffix (Gusfield, 1997, "Algorithms on Strings, Trees, and Sequences").
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class Dry final : public SamplerStep {
 public:
  explicit Dry(const SamplerSetup& setup)
      : multiplier_(setup.options.dry_multiplier),
        base_(setup.options.dry_base),
        allowed_(setup.options.dry_allowed_length),
        window_(setup.options.dry_window) {
    for (const auto& breaker : setup.dry_breakers) {
      if (breaker.size() == 1) breaker_tokens_.insert(breaker[0]);
      if (breaker.size() > 1) breaker_sequences_.push_back(breaker);
    }
  }

  void apply(SamplingRow& row) override {
    for (auto [token, length] : longest_matches()) {
      row.edit(token, [&, n = length](float logit) {
        double penalty = multiplier_ * std::pow(base_, static_cast<double>(n - allowed_));
        return static_cast<float>(logit - std::min(penalty, kMaxPenalty));
      });
    }
  }

  void accept(TokenId token) override {
    history_.push_back(token);
    // Trimmed rarely: a step costs O(1) amortized and memory stays proportional to the window.
    if (window_ > 0 && static_cast<int64_t>(history_.size()) > 2 * window_ + 1024) {
      history_.erase(history_.begin(), history_.end() - window_);
    }
  }

  void reset() override { history_.clear(); }
  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<Dry>(*this); }

 private:
  static constexpr double kMaxPenalty = 1e30;  // a penalised token stays a candidate: it may be the only one

  // Tokens after the end of the last breaker in the window, at most n.
  size_t suffix_limit(size_t n) const {
    for (size_t length = 0; length < n; ++length) {
      auto end = history_.end() - static_cast<ptrdiff_t>(length);  // does a breaker end here?
      if (breaker_tokens_.contains(end[-1])) return length;
      for (const auto& breaker : breaker_sequences_) {
        auto size = static_cast<ptrdiff_t>(breaker.size());
        if (breaker.size() <= n - length && std::equal(breaker.begin(), breaker.end(), end - size)) return length;
      }
    }
    return n;
  }

  std::unordered_map<TokenId, int64_t> longest_matches() {
    std::unordered_map<TokenId, int64_t> matches;
    size_t n = history_.size();
    if (window_ >= 0) n = std::min(n, static_cast<size_t>(window_));
    size_t limit = n > 0 ? suffix_limit(n) : 0;
    if (n < 2 || static_cast<int64_t>(limit) < allowed_) return matches;
    auto reversed = [&](size_t i) { return history_[history_.size() - 1 - i]; };
    z_.assign(n, 0);
    size_t left = 0, right = 0;  // reversed[left, right) equals the beginning
    for (size_t i = 1; i < n; ++i) {
      size_t z = i < right ? std::min(right - i, z_[i - left]) : 0;
      while (i + z < n && reversed(z) == reversed(i + z)) ++z;
      z_[i] = z;
      if (i + z > right) left = i, right = i + z;
      auto length = static_cast<int64_t>(std::min(z, limit));
      if (length < allowed_ || length == 0 || breaker_tokens_.contains(reversed(i - 1))) continue;
      int64_t& longest = matches[reversed(i - 1)];
      longest = std::max(longest, length);
    }
    return matches;
  }

  double multiplier_, base_;
  int64_t allowed_, window_;
  std::unordered_set<TokenId> breaker_tokens_;
  std::vector<std::vector<TokenId>> breaker_sequences_;
  std::vector<TokenId> history_;
  std::vector<size_t> z_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_dry(const SamplerSetup& setup) {
  if (setup.options.dry_multiplier == 0 || setup.options.dry_window == 0) return nullptr;
  return std::make_unique<Dry>(setup);
}

}  // namespace millrace
