// A prompt that is made of documents and a question: tokens, and which of them are a document's. A document has the
// same tokens wherever it stands, so that its keys and values can be reused. For the server, `millrace run` and
// `compare`.
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

// Tokens of a document within a message. A separate text may begin with a space that a tokenizer adds; this one does
// not.
Result<std::vector<TokenId>> encode_within(const LanguageModel& model, const std::string& text);

// In a conversation documents come first in the last message of the user. mark_documents() marks that place in the
// messages (an array of {"role", "content"}), and marked_prompt() puts the documents' tokens there, after the chat
// template has made them the text `text`. Errors: user (no message of the user with a text, or a template that changes
// the text).
Result<void> mark_documents(nlohmann::ordered_json& messages);
Result<DocumentPrompt> marked_prompt(const LanguageModel& model, const std::string& text,
                                     std::span<const std::vector<TokenId>> documents);
// `text` with the documents' own texts at the mark.
std::string shown_prompt(std::string text, std::span<const std::string> documents);

}  // namespace millrace
