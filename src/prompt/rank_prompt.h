// Turns a query and a document into the tokens that a ranking head scores.
//
//   "...<Query>: {query}\n<Document>: {document}..."    the model's own template ("rerank" among its chat templates),
//                                                       with those two words, or in Jinja over messages of these roles
//   BOS query EOS SEP document EOS                      without a template: those of the special tokens that the
//                                                       tokenizer adds to texts; WordPiece: [CLS] query [SEP] document
//                                                       [SEP]
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/model_files.h"
#include "millrace/model.h"
#include "text/template/chat_template.h"

namespace millrace {

// Returns true if the files specify a pooling, as those of embedding models do; a ranking head's pooling does not
// count.
bool states_pooling(const ModelFiles& files);

class RankPrompt {
 public:
  // Errors: unsupported (no tokenizer), or an error in the template. The model must outlive it.
  static Result<RankPrompt> create(const LanguageModel& model);

  // Errors: what the template raises.
  Result<std::vector<TokenId>> tokens(std::string_view query, std::string_view document) const;

  // Cuts `document` to its longest prefix of at most `most_own` tokens with which the pair has at most `most` tokens.
  // Errors: as above, and user if the pair does not fit even with an empty document.
  struct Cut {
    std::vector<TokenId> tokens;
    bool shortened = false;
  };
  Result<Cut> cut(std::string_view query, std::string_view document, int64_t most, int64_t most_own) const;

 private:
  explicit RankPrompt(const LanguageModel& model) : model_(&model) {}
  Result<std::string> fill(std::string_view query, std::string_view document) const;

  const LanguageModel* model_;
  std::string words_;  // a template with {query} and {document}; "": none
  std::optional<ChatTemplate> jinja_;
};

}  // namespace millrace
