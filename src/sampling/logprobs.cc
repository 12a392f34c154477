#include "sampling/logprobs.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "sampling/estimate.h"
#include "sampling/row.h"

namespace millrace {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

double finite_or_none(float logit) { return std::isnan(logit) ? kNone : std::min<double>(logit, FLT_MAX); }

// log(sum(exp(logits))) in two parts, to keep precision with large logits.
struct Normalizer {
  double max = kNone;
  double log_sum = 0;
};

Normalizer normalize(std::span<const float> logits) {
  TokenId best = argmax(logits);
  if (best < 0) return {};
  double max = finite_or_none(logits[static_cast<size_t>(best)]);
  double sum = 0;
  for (float logit : logits) sum += std::exp(finite_or_none(logit) - max);
  return {max, std::log(sum)};
}

// The part of log_sum_exp() is estimated first, and computed if a log-probability may depend on the difference.
class Normalization {
 public:
  explicit Normalization(std::span<const float> logits) : logits_(logits) {
    const TokenId best = logits.size() < kEstimateFrom ? -1 : argmax(logits);
    if (best < 0) {
      compute();
      return;
    }
    max_ = finite_or_none(logits[static_cast<size_t>(best)]);
    log_sum_ = std::log(fastest_row_scan().exp_sum(logits.data(), max_, std::ssize(logits)));
    error_ = 4 * estimate_error(Estimate::fine, logits.size());  // of the logarithm, whose last bits are far below
  }

  float logprob(double logit) {
    if (logit == kNone) return -std::numeric_limits<float>::infinity();
    const double value = logit - max_ - log_sum_, error = error_ + 0x1p-50 * std::fabs(value);
    if (error_ == 0) return static_cast<float>(value);
    if (static_cast<float>(value - error) == static_cast<float>(value + error)) return static_cast<float>(value);
    compute();
    return static_cast<float>(logit - max_ - log_sum_);
  }

 private:
  void compute() {
    const Normalizer exact = normalize(logits_);
    max_ = exact.max;
    log_sum_ = exact.log_sum;
    error_ = 0;
  }

  std::span<const float> logits_;
  double max_ = 0, log_sum_ = 0;
  double error_ = 0;  // of log_sum_, at most
};

// The k largest, best first.
std::vector<Candidate> best_of(std::span<const float> logits, size_t k) {
  std::vector<Candidate> best;  // ascending ids, so that a later equal logit never displaces an earlier one
  constexpr size_t kBlock = 64;
  for (size_t at = 0; k > 0 && at < logits.size(); at += kBlock) {
    const size_t end = std::min(at + kBlock, logits.size());
    if (best.size() == k && !(block_max(logits.data() + at, end - at) > best.front().logit)) continue;
    for (size_t i = at; i < end; ++i) {
      const double logit = finite_or_none(logits[i]);
      if (logit == kNone || (best.size() == k && !(logit > best.front().logit))) continue;
      if (best.size() == k) {  // a heap with the worst in front
        std::pop_heap(best.begin(), best.end(), better);
        best.pop_back();
      }
      best.push_back({static_cast<float>(logit), static_cast<TokenId>(i)});
      std::push_heap(best.begin(), best.end(), better);
    }
  }
  std::sort_heap(best.begin(), best.end(), better);
  return best;
}

}  // namespace

double log_sum_exp(std::span<const float> logits) {
  Normalizer normalizer = normalize(logits);
  return normalizer.max + normalizer.log_sum;
}

Logprobs compute_logprobs(std::span<const float> logits, TokenId chosen, int64_t k) {
  Logprobs out;
  Normalization normalization(logits);
  const bool known = chosen >= 0 && static_cast<size_t>(chosen) < logits.size();
  out.chosen = {chosen, normalization.logprob(known ? finite_or_none(logits[static_cast<size_t>(chosen)]) : kNone)};
  const size_t wanted = std::min(static_cast<size_t>(std::max<int64_t>(k, 0)), logits.size());
  for (const Candidate& candidate : best_of(logits, wanted))
    out.top.push_back({candidate.token, normalization.logprob(candidate.logit)});
  return out;
}

}  // namespace millrace
