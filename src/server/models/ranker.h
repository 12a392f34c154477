// Ranker: ranks with a model that has no ranking head, by a recipe (prompt/rank_recipes.h).
#pragma once

#include <memory>
#include <string>

#include "models/ranking_head.h"
#include "prompt/rank_recipes.h"

namespace millrace {

class LanguageModel;

struct Ranker {
  const RankRecipe* recipe;
  RankingHead head;  // compares the logits of the recipe's two words
};

// Null if `name` is "". Errors: user (an unknown recipe), unsupported (a model without a tokenizer, without such words
// as single tokens, or without an output head).
Result<std::shared_ptr<const Ranker>> make_ranker(const LanguageModel& model, const std::string& name);

}  // namespace millrace
