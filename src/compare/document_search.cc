#include "compare/document_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "context/document_context.h"
#include "run/language_model.h"

namespace millrace {
namespace {

Result<std::unique_ptr<Engine>> search_engine(const std::shared_ptr<const LanguageModel>& model,
                                              const DocumentSearchOptions& options) {
  EngineOptions engine;
  engine.threads = options.threads;
  engine.context = options.cut.longest();
  engine.max_streams = 1;
  engine.kv_format = options.kv_format;
  engine.kv_tokens = 3 * (engine.context + engine.block_tokens * (options.cut.documents + 1));  // and the documents
  return Engine::create(model, engine);
}

std::vector<ScoredWeights> grid_of(const DocumentSearchOptions& options) {
  std::vector<ScoredWeights> grid;
  for (const double temperature : options.temperatures)
    for (const double scale : options.scales) grid.push_back({temperature, scale, {}});
  return grid;
}

void add(const DocumentScore& more, DocumentScore& sum) {
  sum.nll += more.nll;
  sum.kl += more.kl;
  sum.same_top += more.same_top;
}

}  // namespace

std::string ScoredWeights::use() const { return fmt::format("context=ape:T={},S={}", temperature, scale); }

Result<FoundWeights> search_document_weights(const std::shared_ptr<const LanguageModel>& model,
                                             std::span<const TokenId> tokens, const DocumentSearchOptions& options) {
  const auto cases = cut_documents(*model, tokens, options.cut, options.cases);
  if (cases.empty())
    return Error::user(fmt::format("text: has {} tokens, fewer than the {} of {} documents and what follows",
                                   tokens.size(), options.cut.tokens(), options.cut.documents));
  FoundWeights found{.cases = std::ssize(cases), .grid = grid_of(options)};
  if (found.grid.empty()) return Error::user("grid: needs a temperature and a scale at least");
  const auto context_of = [](const ScoredWeights& one) { return one.use().substr(sizeof("context=") - 1); };
  for (const ScoredWeights& one : found.grid) MILLRACE_TRY_VOID(make_document_context(context_of(one)));
  MILLRACE_TRY(const auto engine, search_engine(model, options));
  const int64_t vocab = model->info().vocab;
  const auto wanted = [] { return true; };
  for (const DocumentCase& one : cases) {
    MILLRACE_TRY(const auto plain, predict_behind(*engine, one, "none", vocab, wanted));
    found.plain_nll += score_behind(one, plain, plain).nll;
    for (ScoredWeights& pair : found.grid) {
      MILLRACE_TRY(const auto own, predict_behind(*engine, one, context_of(pair), vocab, wanted));
      add(score_behind(one, plain, own), pair.score);
    }
  }
  const auto n = static_cast<double>(cases.size());
  found.plain_nll /= n;
  for (ScoredWeights& pair : found.grid) pair.score = {pair.score.nll / n, pair.score.kl / n, pair.score.same_top / n};
  const auto best = std::ranges::min_element(found.grid, {}, [](const ScoredWeights& one) { return one.score.kl; });
  found.best = static_cast<size_t>(best - found.grid.begin());
  const auto neutral =
      std::ranges::find_if(found.grid, [](const ScoredWeights& one) { return one.temperature == 1 && one.scale == 1; });
  found.neutral = neutral == found.grid.end() ? 0 : static_cast<size_t>(neutral - found.grid.begin());
  return found;
}

}  // namespace millrace
