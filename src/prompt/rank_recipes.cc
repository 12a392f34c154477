#include "prompt/rank_recipes.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr RankRecipe kRecipes[] = {
    // Zhang et al., 2025, Qwen3 Embedding (arXiv:2506.05176), and the model cards of Qwen3-Reranker
    {.name = "qwen3",
     .words = "<|im_start|>system\n"
              "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note "
              "that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
              "<|im_start|>user\n"
              "<Instruct>: {instruction}\n"
              "<Query>: {query}\n"
              "<Document>: {document}<|im_end|>\n"
              "<|im_start|>assistant\n"
              "<think>\n\n</think>\n\n",
     .instruction = "Given a web search query, retrieve relevant passages that answer the query",
     .relevant = "yes",
     .other = "no"},
};

}  // namespace

const RankRecipe* find_rank_recipe(std::string_view name) {
  const auto* found = std::ranges::find(kRecipes, name, &RankRecipe::name);
  return found == std::end(kRecipes) ? nullptr : found;
}

std::string rank_recipe_names() {
  std::string names;
  for (const RankRecipe& recipe : kRecipes) names += (names.empty() ? "" : ", ") + std::string(recipe.name);
  return names;
}

}  // namespace millrace
