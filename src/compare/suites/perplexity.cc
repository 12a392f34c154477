// Perplexity of a text in windows of 512 tokens, and per token the Kullback-Leibler divergence from the base's
// predictions and the agreement of the likeliest tokens. All configurations score a window before the next one, so that
// only one window's predictions of the base are in memory.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "compare/likelihood.h"
#include "compare/suite_text.h"
#include "compare/suites/records.h"
#include "evaluate/divergence.h"
#include "run/language_model.h"

namespace millrace {
namespace {

constexpr int64_t kWindow = 512;
constexpr int64_t kDefaultWindows = 20;

struct TextOfModel {
  std::vector<TokenId> tokens;
  std::vector<ScoreWindow> windows;
  TokenId window_start = -1;
};

class PerplexityRun final : public SuiteRun {
 public:
  static Result<std::unique_ptr<SuiteRun>> begin(std::span<const CompareConfig> configs, const SuiteInput& input);

  Result<std::vector<std::vector<double>>> measure(size_t config, std::span<const size_t> items,
                                                   const SuiteWanted& wanted) override {
    if (configs_[config].external) return measure_external(config, items, wanted);
    std::vector<std::vector<double>> out;
    for (const size_t item : items) {
      if (!wanted()) return Error::cancelled("interrupted");
      if (config != 0 && item != base_item_) {
        MILLRACE_TRY(const auto of_base, score(0, item));
        static_cast<void>(of_base);
      }
      MILLRACE_TRY(auto values, score(config, item));
      out.push_back(std::move(values));
    }
    return out;
  }

 private:
  PerplexityRun(std::span<const CompareConfig> configs, const SuiteInput& input)
      : configs_(configs),
        text_(input.text),
        threads_(input.threads),
        scorers_(configs.size()),
        external_nll_(configs.size()) {}

  Result<std::vector<double>> score(size_t config, size_t item);
  Result<std::vector<std::vector<double>>> measure_external(size_t config, std::span<const size_t> items,
                                                            const SuiteWanted& wanted) {
    std::vector<double>& nll = external_nll_[config];
    if (nll.empty()) {
      MILLRACE_TRY(nll, configs_[config].external->window_nll(text_, window_, std::ssize(plan_.items), wanted));
    }
    std::vector<std::vector<double>> out;
    for (const size_t item : items) out.push_back({item < nll.size() ? nll[item] : kNoValue, kNoValue, kNoValue});
    return out;
  }

  std::span<const CompareConfig> configs_;
  std::string text_;
  int threads_;
  int64_t window_ = kWindow;
  TextOfModel of_base_;
  std::vector<std::unique_ptr<Scorer>> scorers_;
  std::vector<std::vector<double>> external_nll_;  // [configs, windows]; of other engines, which score all at once
  std::vector<float> base_rows_;                   // log-probabilities of the base, of item base_item_
  size_t base_item_ = SIZE_MAX;
};

Result<TextOfModel> windows_of(const LanguageModel& model, const std::string& text, int64_t window) {
  TextOfModel out;
  MILLRACE_TRY(out.tokens, model.encode(text, true, false));
  out.windows = chunk_windows(std::ssize(out.tokens), window);
  const TokenizerSpec& spec = model.parts().tokenizer->spec();
  if (spec.add_bos && spec.bos) out.window_start = *spec.bos;
  return out;
}

Result<int64_t> window_size(const SuiteInput& input, std::span<const CompareConfig> configs) {
  int64_t window = kWindow, most = INT64_MAX;
  if (!input.argument.empty()) {
    const char *begin = input.argument.data(), *end = begin + input.argument.size();
    const auto [rest, error] = std::from_chars(begin, end, window);
    if (error != std::errc() || rest != end || window < 4 || window > (int64_t{1} << 24))
      return Error::user(fmt::format("'{}' is no window; must be 4 to {} tokens", input.argument, 1 << 24));
  }
  for (const CompareConfig& config : configs)
    if (config.model) most = std::min(most, compare_context(config));
  if (!input.argument.empty() && window > most)
    return Error::user(fmt::format("a window of {} tokens does not fit the context of {}", window, most));
  return std::min(window, most);
}

Result<std::unique_ptr<SuiteRun>> PerplexityRun::begin(std::span<const CompareConfig> configs,
                                                       const SuiteInput& input) {
  if (input.text.empty()) return Error::user("needs a text; name it by --text FILE");
  if (!configs.front().model) return Error::user("the base must be a configuration of millrace");
  auto run = std::unique_ptr<PerplexityRun>(new PerplexityRun(configs, input));
  MILLRACE_TRY(run->window_, window_size(input, configs));
  MILLRACE_TRY(run->of_base_, windows_of(*configs.front().model, input.text, run->window_));
  for (const CompareConfig& config : configs) {
    if (!config.model) continue;
    MILLRACE_TRY(const auto tokens, config.model->encode(input.text, true, false));
    if (tokens != run->of_base_.tokens || config.model->info().vocab != configs.front().model->info().vocab)
      return Error::user(fmt::format("'{}' has another vocabulary than the base, so its predictions do not compare",
                                     config.spec.text));
  }
  const int64_t windows = std::min(std::ssize(run->of_base_.windows), input.items > 0 ? input.items : kDefaultWindows);
  if (windows == 0)
    return Error::user(
        fmt::format("--text has {} tokens, fewer than a window of {}; use a longer text or a smaller "
                    "window, perplexity:N",
                    run->of_base_.tokens.size(), run->window_));
  run->plan_ = {.name = "perplexity",
                .identity = identity_of({input.text, std::to_string(run->window_)}),
                .metrics = {{"perplexity", false, SuiteAverage::exponential},
                            {"kl_divergence", false, SuiteAverage::mean},
                            {"same_top_token", true, SuiteAverage::mean}},
                .items = std::vector<std::string>(static_cast<size_t>(windows)),
                .sight = {.generates = false}};
  return std::unique_ptr<SuiteRun>(std::move(run));
}

// Means over the window's scored tokens; of the base, its predictions are kept.
Result<std::vector<double>> PerplexityRun::score(size_t config, size_t item) {
  if (!scorers_[config]) {
    MILLRACE_TRY(scorers_[config],
                 Scorer::create(configs_[config].model, scorer_options(configs_[config], window_, threads_)));
  }
  Scorer& scorer = *scorers_[config];
  const ScoreWindow& window = of_base_.windows[item];
  const int64_t vocab = scorer.vocab();
  std::vector<float> log_probs(static_cast<size_t>(vocab));
  if (config == 0) base_rows_.resize(static_cast<size_t>(window.scored() * vocab));
  double nll = 0, kl = 0, same_top = 0;
  int64_t row_number = 0;
  const auto take = [&](std::span<const ScoredRow> rows) -> Result<void> {
    for (const ScoredRow& row : rows) {
      float* const of_base = base_rows_.data() + row_number++ * vocab;
      float* const own = config == 0 ? of_base : log_probs.data();
      log_softmax(row.logits, vocab, own);
      nll -= static_cast<double>(own[row.target]);
      if (config == 0) continue;
      const TokenDivergence divergence = compare_rows(of_base, own, vocab, row.target);
      kl += divergence.kl;
      same_top += divergence.same_top;
    }
    return {};
  };
  MILLRACE_TRY_VOID(scorer.run(of_base_.tokens, std::span(&window, 1), of_base_.window_start, take));
  if (config == 0) base_item_ = item;
  const auto n = static_cast<double>(row_number);
  return std::vector<double>{nll / n, kl / n, config == 0 ? 1 : same_top / n};
}

}  // namespace

const CompareSuite kPerplexitySuite = {
    .name = "perplexity",
    .argument = "[WINDOW]",
    .summary = "how well the model predicts --text, and how far its predictions are from the base's",
    .paper = "",
    .begin = PerplexityRun::begin,
};

}  // namespace millrace
