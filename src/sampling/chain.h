// SamplerChain: the sampling steps of a request, in order, followed by the random draw. One chain per sequence, used by
// one thread at a time. A token depends only on the logits, the accepted tokens, the seed and the position.
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
  // Errors: user (an option out of range, a token id outside the vocabulary).
  static Result<SamplerChain> create(const SamplerSetup& setup);

  SamplerChain(SamplerChain&&) = default;
  SamplerChain& operator=(SamplerChain&&) = default;
  SamplerChain clone() const;  // an independent copy, e.g. to try a draft

  // Runs every step. `row` then contains the candidates of the final distribution (row.softmax()). Modifies `logits`,
  // so log-probabilities (logprobs.h) must be computed first.
  void apply(std::span<float> logits, int64_t position, SamplingRow& row);
  // Calls apply(), then checks the steps. Errors: those of steps that cannot continue (SamplerStep::failure).
  Result<void> distribution(std::span<float> logits, int64_t position, SamplingRow& row);
  // Calls distribution() and draws a token. Errors: user (no token is left: all are banned, or all logits are NaN or
  // -inf), and those of distribution().
  Result<TokenId> sample(std::span<float> logits, int64_t position, SamplingRow& row);

  void accept(TokenId token);
  // Call the functions of SamplerStep of these names for all steps of the chain.
  bool prepare(int64_t units);
  bool settled() const;
  std::shared_ptr<DeferredWork> deferred();
  size_t bytes() const;  // bytes that clone() copies, only of steps where they may be many
  void reset();
  bool ended() const;  // a step reports that no token can follow

 private:
  SamplerChain() = default;
  uint64_t seed_ = 0;
  std::vector<std::unique_ptr<SamplerStep>> steps_;
};

// Draw a token from the candidates of a row: the first candidate in order at which the cumulative probability exceeds
// `uniform`. Without the parameter, row.uniform(RandomStream::token) is used.
Result<TokenId> draw(SamplingRow& row, double uniform);
Result<TokenId> draw(SamplingRow& row);

}  // namespace millrace
