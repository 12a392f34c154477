// A prompt of documents and a question: its tokens, and the ranges of them that are documents. A document has the same
// tokens at any place, so its keys and values can be reused. Used by the server, `millrace run` and `compare`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "millrace/model.h"
#include "millrace/request.h"

namespace millrace {

struct DocumentPrompt {
  std::vector<TokenId> tokens;
  std::vector<PromptDocument> documents;

  void add(std::span<const TokenId> ids) { tokens.insert(tokens.end(), ids.begin(), ids.end()); }
  void add_documents(std::span<const std::vector<TokenId>> list);
};

// Returns the tokens of a document within a message: without the space that some tokenizers add before a text.
Result<std::vector<TokenId>> encode_within(const LanguageModel& model, const std::string& text);

// In a conversation, documents are at the beginning of the last user message. Called in this order: mark_documents()
// marks that place in `messages`, an array of {"role", "content"}; the chat template renders them to `text`;
// marked_prompt() replaces the mark by the documents' tokens. Errors: user (no user message has a text, or the template
// changes the mark).
Result<void> mark_documents(nlohmann::ordered_json& messages);
Result<DocumentPrompt> marked_prompt(const LanguageModel& model, const std::string& text,
                                     std::span<const std::vector<TokenId>> documents);
// Returns `text` with the documents' texts in place of the mark.
std::string shown_prompt(std::string text, std::span<const std::string> documents);

}  // namespace millrace
