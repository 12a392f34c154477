#include "capi/chat_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"
#include "prompt/chat_prompt.h"

namespace millrace {
namespace {

// Returns true if the value, or its member "messages", is an array of objects.
bool has_messages(const nlohmann::ordered_json& json) {
  const auto found = json.find("messages");  // end(): not an object, or no such member
  const auto& messages = found == json.end() ? json : *found;
  return messages.is_array() && std::ranges::all_of(messages, [](const auto& entry) { return entry.is_object(); });
}

Result<nlohmann::ordered_json> read_messages(const char* messages) {
  auto json = parse_json<nlohmann::ordered_json>(messages);
  if (!has_messages(json))
    return Error::user("messages: must be a JSON array of {\"role\", \"content\"} objects, or an object with messages");
  return json;
}

}  // namespace

Result<std::string> chat_of_json(const LanguageModel& model, const char* messages, bool add_generation_prompt) {
  MILLRACE_TRY(const auto json, read_messages(messages));
  return chat_text(model, json, add_generation_prompt);
}

Result<DocumentPrompt> chat_prompt(const LanguageModel& model, const char* messages,
                                   std::span<const std::string> documents) {
  MILLRACE_TRY(auto json, read_messages(messages));
  if (!documents.empty()) MILLRACE_TRY_VOID(mark_documents(json.is_array() ? json : json["messages"]));
  MILLRACE_TRY(const std::string text, chat_text(model, json, true));
  DocumentPrompt prompt;
  if (documents.empty()) {
    MILLRACE_TRY(prompt.tokens, encode_chat(model, text));
    return prompt;
  }
  std::vector<std::vector<TokenId>> encoded;
  for (const std::string& document : documents) {
    MILLRACE_TRY(encoded.emplace_back(), encode_within(model, document));
    if (encoded.back().empty()) return Error::user(fmt::format("document {}: is empty", encoded.size() - 1));
  }
  return marked_prompt(model, text, encoded);
}

}  // namespace millrace
