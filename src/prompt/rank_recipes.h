// RankRecipe: prompt and answer words of a published reranker without a ranking head. The logits of two words after the
// last token are the score.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

struct RankRecipe {
  std::string_view name;
  std::string_view words;        // prompt with {instruction}, {query} and {document}
  std::string_view instruction;  // for requests without their own
  std::string_view relevant;     // a word of one token; its probability among both words is the score
  std::string_view other;        // likewise
};

const RankRecipe* find_rank_recipe(std::string_view name);  // null: unknown
std::string rank_recipe_names();                            // "a, b"

}  // namespace millrace
