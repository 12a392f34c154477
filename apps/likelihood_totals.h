// Sums of negative log-likelihoods of scored tokens: of all, and by the tokens' places in their windows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "evaluate/scorer.h"

namespace millrace {

struct LikelihoodTotals {
  double sum = 0, squares = 0;
  int64_t count = 0;

  void add(double nll) { sum += nll, squares += nll * nll, ++count; }
  double mean() const { return sum / static_cast<double>(count); }
  double perplexity() const { return std::exp(mean()); }
  double mean_stderr() const {  // standard error of the mean, assuming independent tokens
    if (count < 2) return 0;
    const double n = static_cast<double>(count);
    return std::sqrt(std::max(0.0, squares / n - mean() * mean()) / (n - 1));
  }
};

// Likelihoods of scored tokens, by their positions in their windows. Tokens are added in the order of the windows.
class PositionTotals {
 public:
  // `size` positions together; 0: none.
  PositionTotals(const std::vector<ScoreWindow>& windows, int64_t size) : windows_(windows), size_(size) {}

  void add(double nll) {
    if (size_ == 0) return;
    while (scored_ == windows_[window_].scored()) ++window_, scored_ = 0;
    const auto at = static_cast<size_t>((windows_[window_].first_scored + scored_++) / size_);
    if (at >= totals_.size()) totals_.resize(at + 1);
    totals_[at].add(nll);
  }
  // each(first position, totals), ascending, where anything was scored.
  template <typename Each>
  void for_each(const Each& each) const {
    for (size_t i = 0; i < totals_.size(); ++i)
      if (totals_[i].count > 0) each(static_cast<int64_t>(i) * size_, totals_[i]);
  }

 private:
  const std::vector<ScoreWindow>& windows_;
  const int64_t size_;
  size_t window_ = 0;
  int64_t scored_ = 0;  // tokens of that window
  std::vector<LikelihoodTotals> totals_;
};

}  // namespace millrace
