// LikelihoodScorers: computes the likelihood of a continuation of a context for every configuration, as in
// lm-evaluation-harness (Gao et al., 2021, "A framework for few-shot language model evaluation"). Spaces at the
// context's end belong to the continuation. Context and continuation are tokenized as one text, which is cut at its
// beginning if it is too long. The configuration's KV format and evictor apply. Not thread-safe.
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
  int64_t from = 1;  // index of the continuation's first token
};

struct ContinuationScore {
  double log_likelihood = 0;
  int64_t tokens = 0;
  bool greedy = false;  // true: each token is the likeliest one
};

// Errors: user (the continuation is empty, or no token precedes it).
Result<ContinuationTokens> encode_continuation(const LanguageModel& model, const Continuation& continuation,
                                               int64_t context);

// Returns the options of a scorer for windows of up to `window` tokens.
ScorerOptions scorer_options(const CompareConfig& config, int64_t window, int threads);

class LikelihoodScorers {
 public:
  LikelihoodScorers(std::span<const CompareConfig> configs, int threads)
      : configs_(configs), threads_(threads), scorers_(configs.size()) {}

  // Errors: those of Scorer, cancelled, unsupported (the configuration uses another engine).
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
  std::vector<Sized> scorers_;  // by configuration: a scorer for the longest window so far
};

}  // namespace millrace
