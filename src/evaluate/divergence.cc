#include "evaluate/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "sampling/logprobs.h"
#include "sampling/row.h"

namespace millrace {
namespace {

// Linear between the two nearest ranks; `sorted` ascending, not empty.
double percentile(const std::vector<double>& sorted, double fraction) {
  const double rank = fraction * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(rank);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (rank - static_cast<double>(low));
}

}  // namespace

void log_softmax(const float* logits, int64_t vocab, float* log_probs) {
  const double total = log_sum_exp({logits, static_cast<size_t>(vocab)});
  for (int64_t i = 0; i < vocab; ++i) {
    const double x = static_cast<double>(logits[i]) - total;
    log_probs[i] = x <= 0 ? static_cast<float>(x) : (x > 0 ? 0.0f : -std::numeric_limits<float>::infinity());
  }
}

TokenDivergence compare_rows(const float* reference, const float* log_probs, int64_t vocab, TokenId target) {
  TokenDivergence out;
  for (int64_t i = 0; i < vocab; ++i) {
    const double p = std::exp(static_cast<double>(reference[i]));
    if (p > 0) out.kl += p * (static_cast<double>(reference[i]) - log_probs[i]);
  }
  const auto n = static_cast<size_t>(vocab);
  out.reference_nll = -static_cast<double>(reference[target]);
  out.probability_change =
      std::exp(static_cast<double>(log_probs[target])) - std::exp(static_cast<double>(reference[target]));
  out.same_top = argmax(std::span(reference, n)) == argmax(std::span(log_probs, n));
  return out;
}

DivergenceSummary summarize(const std::vector<TokenDivergence>& tokens) {
  DivergenceSummary out;
  if (tokens.empty()) return out;
  const auto n = static_cast<double>(tokens.size());
  std::vector<double> kl;
  kl.reserve(tokens.size());
  double squares = 0;
  for (const TokenDivergence& t : tokens) {
    kl.push_back(t.kl);
    out.kl_mean += t.kl / n;
    out.same_top += t.same_top / n;
    out.reference_nll_mean += t.reference_nll / n;
    squares += t.probability_change * t.probability_change;
  }
  out.probability_change_rms = std::sqrt(squares / n);
  double spread = 0;
  for (double x : kl) spread += (x - out.kl_mean) * (x - out.kl_mean);
  if (n > 1) out.kl_mean_stderr = std::sqrt(spread / n / (n - 1));
  std::ranges::sort(kl);
  out.kl_median = percentile(kl, 0.5);
  out.kl_p90 = percentile(kl, 0.9);
  out.kl_p99 = percentile(kl, 0.99);
  out.kl_max = kl.back();
  return out;
}

}  // namespace millrace
