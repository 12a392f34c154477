#include "evaluate/model_divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "evaluate/scorer.h"

namespace millrace {
namespace {

constexpr int64_t kDivergenceWindow = 512;

}  // namespace

Result<ModelDivergence> compare_models(std::shared_ptr<const LanguageModel> reference,
                                       std::shared_ptr<const LanguageModel> model, const DivergenceText& text) {
  const int64_t vocab = reference->info().vocab;
  if (model->info().vocab != vocab)
    return Error::user(
        fmt::format("the models have vocabularies of {} and {} tokens; only models of one vocabulary can be compared",
                    vocab, model->info().vocab));
  const int64_t longest = std::min(reference->parts().model->context(), model->parts().model->context());
  const int64_t context = text.context > 0 ? std::min(text.context, longest) : std::min(kDivergenceWindow, longest);
  MILLRACE_TRY(const std::vector<TokenId> tokens, reference->encode(text.text, true, false));
  const int64_t count = std::ssize(tokens);
  std::vector<ScoreWindow> windows = count < context ? document_windows(count, context) : chunk_windows(count, context);
  if (windows.empty()) return Error::user(fmt::format("{}: has {} tokens; at least 2 are needed", text.name, count));
  if (text.windows > 0 && text.windows < std::ssize(windows)) windows.resize(static_cast<size_t>(text.windows));
  const TokenizerSpec& spec = reference->parts().tokenizer->spec();
  const TokenId start = spec.add_bos && spec.bos ? *spec.bos : -1;

  ScorerOptions options;
  options.threads = text.threads;
  options.context = context;
  options.batch_tokens = context;
  options.kv_format = "f32";
  MILLRACE_TRY(const auto first, Scorer::create(reference, options));
  MILLRACE_TRY(const auto second, Scorer::create(model, options));

  const auto row_values = static_cast<size_t>(vocab);
  std::vector<float> before, after(row_values);  // of one window
  std::vector<TokenDivergence> found;
  double nll = 0;
  for (size_t w = 0; w < windows.size(); ++w) {
    const std::span<const ScoreWindow> window(&windows[w], 1);
    before.clear();
    MILLRACE_TRY_VOID(first->run(tokens, window, start, [&](std::span<const ScoredRow> rows) -> Result<void> {
      for (const ScoredRow& row : rows) {
        before.resize(before.size() + row_values);
        log_softmax(row.logits, vocab, before.data() + before.size() - row_values);
      }
      return {};
    }));
    size_t at = 0;
    MILLRACE_TRY_VOID(second->run(tokens, window, start, [&](std::span<const ScoredRow> rows) -> Result<void> {
      for (const ScoredRow& row : rows) {
        log_softmax(row.logits, vocab, after.data());
        found.push_back(compare_rows(before.data() + at, after.data(), vocab, row.target));
        nll -= static_cast<double>(after[static_cast<size_t>(row.target)]);
        at += row_values;
      }
      return {};
    }));
    if (text.progress) text.progress(static_cast<double>(w + 1) / static_cast<double>(windows.size()));
  }
  if (found.empty())
    return Error::user(fmt::format("context {}: no token of a window would be scored; must be at least 3", context));
  ModelDivergence out{.tokens = std::ssize(found), .divergence = summarize(found)};
  out.perplexity = std::exp(nll / static_cast<double>(out.tokens));
  out.reference_perplexity = std::exp(out.divergence.reference_nll_mean);
  return out;
}

}  // namespace millrace
