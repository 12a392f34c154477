// SamplerChain: the steps that a request asks for, in order, and the draw at their end. One chain per sequence, used by
// one thread at a time. A token depends on the logits, the accepted tokens, the seed and the position alone.
//
//   MILLRACE_TRY(auto chain, SamplerChain::create(setup));
//   for (TokenId token : prompt) chain.accept(token);
//   MILLRACE_TRY(TokenId token, chain.sample(logits, position, row));   // position: 0 for the first generated token
//   chain.accept(token);
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "sampling/row.h"
#include "sampling/step.h"

namespace millrace {

class SamplerChain {
 public:
  // Errors: user (an option out of its bounds, a token id outside the vocabulary).
  static Result<SamplerChain> create(const SamplerSetup& setup);

  SamplerChain(SamplerChain&&) = default;
  SamplerChain& operator=(SamplerChain&&) = default;
  SamplerChain clone() const;  // independent from here on, e.g. to try a draft

  // Runs every step: the row is left with the candidates of the final distribution (row.softmax()). Edits `logits`;
  // take log-probabilities (logprobs.h) before.
  void apply(std::span<float> logits, int64_t position, SamplingRow& row);
  // apply() and the draw. Errors: user (no token is left: all are banned, or all logits are NaN or -inf), those of
  // steps that cannot go on (SamplerStep::failure).
  Result<TokenId> sample(std::span<float> logits, int64_t position, SamplingRow& row);

  void accept(TokenId token);
  void reset();
  bool ended() const;  // some step says that nothing can follow

 private:
  SamplerChain() = default;
  uint64_t seed_ = 0;
  std::vector<std::unique_ptr<SamplerStep>> steps_;
};

// Draws from the candidates of a row: the first one in its order whose cumulated probability exceeds
// row.uniform(token).
Result<TokenId> draw(SamplingRow& row);

}  // namespace millrace
