#include "server/models/ranker.h"

#include <fmt/format.h>

#include "run/language_model.h"

namespace millrace {
namespace {

constexpr std::string_view kWithoutRanker =
    "serve it without a ranker (--ranker, `ranker` in --models-file, or PARAMETER ranker)";

Result<TokenId> token_of(const LanguageModel& model, std::string_view word, const std::string& name) {
  MILLRACE_TRY(const auto tokens, model.encode(word, /*add_special=*/false));
  if (tokens.size() != 1)
    return Error::unsupported(fmt::format("ranker {}: \"{}\" has {} tokens in this model's vocabulary, not one; {}",
                                          name, word, tokens.size(), kWithoutRanker));
  return tokens.front();
}

}  // namespace

Result<std::shared_ptr<const Ranker>> make_ranker(const LanguageModel& model, const std::string& name) {
  if (name.empty()) return std::shared_ptr<const Ranker>();
  const RankRecipe* recipe = find_rank_recipe(name);
  if (!recipe) return Error::user(fmt::format("ranker: unknown '{}'; available: {}", name, rank_recipe_names()));
  const auto& parts = model.parts();
  if (const ArchSpec& spec = parts.model->spec(); spec.encoder)
    return Error::unsupported(fmt::format("ranker {}: this model is an encoder ({}), which predicts no words; {}", name,
                                          spec.arch, kWithoutRanker));
  MILLRACE_TRY(const TokenId relevant, token_of(model, recipe->relevant, name));
  MILLRACE_TRY(const TokenId other, token_of(model, recipe->other, name));
  auto head = RankingHead::of_tokens(*parts.files, parts.model->spec(), relevant, other);
  if (!head.ok()) return Error{head.error().kind, fmt::format("ranker {}: {}", name, head.error().message)};
  return std::make_shared<const Ranker>(Ranker{recipe, std::move(*head)});
}

}  // namespace millrace
