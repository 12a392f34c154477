// Log-probabilities of the model's unmodified distribution, before any sampling step. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/events.h"

namespace millrace {

struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // best first, ties by lower id; without tokens whose logit is NaN or -inf
};

// Returns the log softmax over the whole vocabulary for `chosen` and the k best tokens. Sums are in double, by
// ascending id. NaN is treated as -inf. If the probability of `chosen` is 0, its log-probability is -inf.
Logprobs compute_logprobs(std::span<const float> logits, TokenId chosen, int64_t k);

// Returns log(sum(exp(logits))), summed like compute_logprobs(); -inf if no logit is finite.
double log_sum_exp(std::span<const float> logits);

}  // namespace millrace
