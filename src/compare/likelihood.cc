#include "compare/likelihood.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "sampling/logprobs.h"

namespace millrace {

Result<ContinuationTokens> encode_continuation(const LanguageModel& model, const Continuation& continuation,
                                               int64_t context) {
  std::string before = continuation.context, text = continuation.text;
  while (!before.empty() && (before.back() == ' ' || before.back() == '\n')) {
    text.insert(text.begin(), before.back());
    before.pop_back();
  }
  ContinuationTokens out;
  MILLRACE_TRY(out.tokens, model.encode(before + text, true, false));
  MILLRACE_TRY(const auto first, model.encode(before, true, false));
  out.from = std::ssize(first);
  if (out.from < 1 || out.from >= std::ssize(out.tokens))
    return Error::user(fmt::format("'{}' is no continuation: it or the text before it has no token", text));
  if (const int64_t over = std::ssize(out.tokens) - context; over > 0) {
    out.tokens.erase(out.tokens.begin(), out.tokens.begin() + over);
    out.from -= over;
    if (out.from < 1)
      return Error::user(fmt::format("a continuation of {} tokens does not fit a context of {}",
                                     std::ssize(out.tokens) - out.from, context));
  }
  return out;
}

ScorerOptions scorer_options(const CompareConfig& config, int64_t window, int threads) {
  ScorerOptions options;
  options.threads = threads;
  options.context = window;
  options.kv_format = config.engine.kv_format;
  options.evictor = config.engine.evictor;
  options.kernels = config.engine.kernels;
  return options;
}

Result<Scorer*> LikelihoodScorers::scorer_of(size_t config, int64_t window) {
  Sized& own = scorers_[config];
  if (own.window < window) {
    const auto rounded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(window)));
    own.window = std::min(compare_context(configs_[config]), rounded);
    own.scorer.reset();
    MILLRACE_TRY(own.scorer,
                 Scorer::create(configs_[config].model, scorer_options(configs_[config], own.window, threads_)));
  }
  return own.scorer.get();
}

Result<std::vector<ContinuationScore>> LikelihoodScorers::score(size_t config,
                                                                std::span<const Continuation> continuations,
                                                                const SuiteWanted& wanted) {
  const CompareConfig& of = configs_[config];
  if (!of.model) return Error::unsupported("only millrace's configurations score continuations");
  std::vector<TokenId> tokens;
  std::vector<ScoreWindow> windows;
  std::vector<ContinuationScore> out;
  int64_t longest = 2;
  for (const Continuation& continuation : continuations) {
    MILLRACE_TRY(const auto encoded, encode_continuation(*of.model, continuation, compare_context(of)));
    windows.push_back({std::ssize(tokens), std::ssize(encoded.tokens), encoded.from});
    tokens.insert(tokens.end(), encoded.tokens.begin(), encoded.tokens.end());
    out.push_back({0, windows.back().scored(), true});
    longest = std::max(longest, windows.back().count);
  }
  MILLRACE_TRY(Scorer* const scorer, scorer_of(config, longest));
  size_t window = 0;
  int64_t row_of_window = 0;
  const auto vocab = static_cast<size_t>(scorer->vocab());
  MILLRACE_TRY_VOID(scorer->run(tokens, windows, -1, [&](std::span<const ScoredRow> rows) -> Result<void> {
    if (!wanted()) return Error::cancelled("interrupted");
    for (const ScoredRow& row : rows) {
      const std::span<const float> logits(row.logits, vocab);
      out[window].log_likelihood += static_cast<double>(row.logits[row.target]) - log_sum_exp(logits);
      out[window].greedy &= std::ranges::max_element(logits) - logits.begin() == row.target;
      if (++row_of_window < windows[window].scored()) continue;
      ++window;
      row_of_window = 0;
    }
    return {};
  }));
  return out;
}

}  // namespace millrace
