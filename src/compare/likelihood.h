// LikelihoodScorers: how likely every configuration finds a continuation of a context, as lm-evaluation-harness asks
// (Gao et al., 2021, "A framework for few-shot language model evaluation"): spaces at the context's end belong to the
// continuation, context and continuation are tokenized as one text, and a text that is too long loses its beginning. KV
// format and evictor of the configuration apply. Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compare/config.h"
#include "compare/suite.h"
#include "evaluate/scorer.h"

namespace millrace {

struct Continuation {
  std::string context, text;
};

struct ContinuationTokens {
  std::vector<TokenId> tokens;
  int64_t from = 1;  // the first token of the continuation
};

struct ContinuationScore {
  double log_likelihood = 0;
  int64_t tokens = 0;
  bool greedy = false;  // each token is the likeliest one
};

// Errors: user (nothing to predict, or nothing before it).
Result<ContinuationTokens> encode_continuation(const LanguageModel& model, const Continuation& continuation,
                                               int64_t context);

// Options of a scorer for windows of up to `window` tokens.
ScorerOptions scorer_options(const CompareConfig& config, int64_t window, int threads);

class LikelihoodScorers {
 public:
  LikelihoodScorers(std::span<const CompareConfig> configs, int threads)
      : configs_(configs), threads_(threads), scorers_(configs.size()) {}

  // Errors: those of Scorer, cancelled, unsupported (the configuration of another engine).
  Result<std::vector<ContinuationScore>> score(size_t config, std::span<const Continuation> continuations,
                                               const SuiteWanted& wanted);

 private:
  struct Sized {
    std::unique_ptr<Scorer> scorer;
    int64_t window = 0;
  };
  Result<Scorer*> scorer_of(size_t config, int64_t window);

  std::span<const CompareConfig> configs_;
  int threads_;
  std::vector<Sized> scorers_;  // for the longest window so far
};

}  // namespace millrace
