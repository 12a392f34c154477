#include "sampling/logprobs.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

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

}  // namespace

double log_sum_exp(std::span<const float> logits) {
  Normalizer normalizer = normalize(logits);
  return normalizer.max + normalizer.log_sum;
}

Logprobs compute_logprobs(std::span<const float> logits, TokenId chosen, int64_t k) {
  Logprobs out;
  Normalizer normalizer = normalize(logits);
  auto logprob = [&](TokenId token, double logit) {
    double value = logit == kNone ? kNone : logit - normalizer.max - normalizer.log_sum;
    return TokenLogprob{token, static_cast<float>(value)};
  };
  bool known = chosen >= 0 && static_cast<size_t>(chosen) < logits.size();
  out.chosen = logprob(chosen, known ? finite_or_none(logits[static_cast<size_t>(chosen)]) : kNone);
  size_t wanted = std::min(static_cast<size_t>(std::max<int64_t>(k, 0)), logits.size());
  std::vector<Candidate> best;  // ascending ids, so that a later equal logit never displaces an earlier one
  for (size_t i = 0; wanted > 0 && i < logits.size(); ++i) {
    double logit = finite_or_none(logits[i]);
    if (logit == kNone || (best.size() == wanted && !(logit > best.front().logit))) continue;
    if (best.size() == wanted) {  // a heap with the worst in front
      std::pop_heap(best.begin(), best.end(), better);
      best.pop_back();
    }
    best.push_back({static_cast<float>(logit), static_cast<TokenId>(i)});
    std::push_heap(best.begin(), best.end(), better);
  }
  std::sort_heap(best.begin(), best.end(), better);
  for (const auto& candidate : best) out.top.push_back(logprob(candidate.token, candidate.logit));
  return out;
}

}  // namespace millrace
