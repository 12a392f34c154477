// Turns a query and a document into the tokens that a ranking head scores.
//
//   a recipe's words (rank_recipes.h)                   text with {instruction}, {query} and {document}
//   "...<Query>: {query}\n<Document>: {document}..."    the model's template ("rerank" among its chat templates): text
//                                                       with {query} and {document}, or Jinja over messages whose roles
//                                                       are query and document
//   BOS query EOS SEP document EOS                      without a template; special tokens that the tokenizer does not
//                                                       add to a text are left out; WordPiece: [CLS] query [SEP]
//                                                       document [SEP]
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/model_files.h"
#include "millrace/model.h"
#include "prompt/rank_recipes.h"
#include "text/template/chat_template.h"

namespace millrace {

// Returns true if the files specify a pooling, as for embedding models. A ranking head's pooling does not count.
bool states_pooling(const ModelFiles& files);

class RankPrompt {
 public:
  // `model` must outlive the object. `recipe`: null: the model's own template. `instruction`: what documents are ranked
  // for; "": the recipe's. Errors: unsupported (no tokenizer), user (an instruction without a place for it), or an
  // error in the template.
  static Result<RankPrompt> create(const LanguageModel& model, const RankRecipe* recipe = nullptr,
                                   std::string instruction = "");

  // Errors: those that the template raises.
  Result<std::vector<TokenId>> tokens(std::string_view query, std::string_view document) const;

  // Returns the tokens of the pair after cutting `document` to a prefix, so that the document has at most `most_own`
  // tokens and the pair at most `most`. Errors: as above, and user (the pair does not fit even with an empty document).
  struct Cut {
    std::vector<TokenId> tokens;
    bool shortened = false;
  };
  Result<Cut> cut(std::string_view query, std::string_view document, int64_t most, int64_t most_own) const;

 private:
  explicit RankPrompt(const LanguageModel& model) : model_(&model) {}
  Result<std::string> fill(std::string_view query, std::string_view document) const;

  const LanguageModel* model_;
  std::string words_;        // template with {query} and {document}; "": none
  std::string instruction_;  // for {instruction}
  std::optional<ChatTemplate> jinja_;
};

}  // namespace millrace
