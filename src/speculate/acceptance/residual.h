// Shared by the acceptance rules that preserve the model's distribution: the final row as probabilities, and the draw
// if no drafted token was accepted.
//
// If q is unknown, it is taken as probability 1 for the drafted token x. Then x is accepted with probability p(x), or
// else another candidate is drawn. This equals drawing from p and keeping x if it was drawn, which draw(row) does with
// the random number of plain sampling. No rule accepts a drafted token more often than with its p.
#pragma once

#include "speculate/acceptance/factories.h"

namespace millrace {

// The probabilities p of a row's candidates.
class FinalRow {
 public:
  explicit FinalRow(SamplingRow& row) : total_(row.softmax().total), list_(row.candidates()), weights_(row.weights()) {}
  size_t size() const { return list_.size(); }
  TokenId token(size_t i) const { return list_[i].token; }
  double p(size_t i) const { return weights_[i] / total_; }
  // Returns the index of the candidate with this token; size() if there is none.
  size_t find(TokenId token) const {
    size_t i = 0;
    while (i < list_.size() && list_[i].token != token) ++i;
    return i;
  }
  double p_of(TokenId token) const {
    const size_t i = find(token);
    return i < size() ? p(i) : 0;
  }

 private:
  double total_;
  std::span<const Candidate> list_;
  std::span<const double> weights_;
};

// Draws a candidate with a probability proportional to its weight. Weights are not negative. If rounding made all of
// them 0, uses plain sampling.
inline TokenId draw_weighted(SamplingRow& row, std::span<const double> weights, double uniform) {
  double total = 0;
  for (const double weight : weights) total += weight;
  if (!(total > 0)) return draw(row, uniform).value();
  double cumulated = 0;
  size_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) last = i;
    cumulated += weights[i];
    if (cumulated > uniform * total) return row.candidates()[i].token;
  }
  return row.candidates()[last].token;
}

// Tries the drafted tokens one after the other. x is accepted with probability min(1, p(x) / q(x)). If it is not, p
// becomes norm(max(0, p - q)); after the last trial the token is drawn from that p. Each trial preserves the p that it
// begins with, so any number of trials preserves the model's distribution.
inline TokenId try_in_turn(SamplingRow& row, std::span<const DraftedToken> drafted, std::vector<double>& scratch) {
  if (!drafted.front().odds) return draw(row).value();
  const FinalRow final(row);
  scratch.resize(final.size());
  for (size_t i = 0; i < final.size(); ++i) scratch[i] = final.p(i);
  for (size_t trial = 0; trial < drafted.size(); ++trial) {
    const auto [token, odds] = drafted[trial];
    const size_t at = final.find(token);
    const double p = at < final.size() ? scratch[at] : 0;
    if (row.uniform(RandomStream::accept, trial) * odds->of(token) < p) return token;
    double left = 0;
    for (size_t i = 0; i < final.size(); ++i) {
      scratch[i] = std::max(0.0, scratch[i] - odds->of(final.token(i)));
      left += scratch[i];
    }
    if (!(left > 0)) break;
    for (double& weight : scratch) weight /= left;
  }
  return draw_weighted(row, scratch, row.uniform(RandomStream::residual));
}

}  // namespace millrace
