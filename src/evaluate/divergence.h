// Measures of the difference between a distribution over the vocabulary and a reference: Kullback-Leibler divergence,
// top-token agreement and the probability of the actual token, per token and aggregated. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "millrace/token.h"

namespace millrace {

struct TokenDivergence {
  double kl = 0;                  // sum p_ref (log p_ref - log p), natural logarithm
  double reference_nll = 0;       // -log p_ref of the actual token
  double probability_change = 0;  // p(token) - p_ref(token)
  bool same_top = false;
};

// Computes log p of every token, `log_probs` [vocab]. NaN is treated as probability 0.
void log_softmax(const float* logits, int64_t vocab, float* log_probs);

TokenDivergence compare_rows(const float* reference, const float* log_probs, int64_t vocab, TokenId target);

struct DivergenceSummary {
  double kl_mean = 0, kl_mean_stderr = 0, kl_median = 0, kl_p90 = 0, kl_p99 = 0, kl_max = 0;
  double same_top = 0;  // fraction
  double probability_change_rms = 0;
  double reference_nll_mean = 0;
};
DivergenceSummary summarize(const std::vector<TokenDivergence>& tokens);

}  // namespace millrace
