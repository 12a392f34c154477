// Log-probabilities of the model's unmodified distribution, before any sampling step. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/events.h"

namespace millrace {

struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // best first, ties by lower id; tokens with a NaN or -inf logit are left out
};

// log softmax over the whole vocabulary for `chosen` and the k best tokens. Summed in double, by ascending id. NaN is
// treated as -inf; a chosen token without probability has -inf.
Logprobs compute_logprobs(std::span<const float> logits, TokenId chosen, int64_t k);

// log(sum(exp(logits))), as above; -inf if no logit is finite.
double log_sum_exp(std::span<const float> logits);

}  // namespace millrace
