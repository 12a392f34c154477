#include "capi/chat_json.h"

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

}  // namespace

Result<std::string> chat_of_json(const LanguageModel& model, const char* messages, bool add_generation_prompt) {
  const auto json = parse_json(messages);
  if (!has_messages(json))
    return Error::user("messages: must be a JSON array of {\"role\", \"content\"} objects, or an object with messages");
  return chat_text(model, json, add_generation_prompt);
}

Result<std::vector<TokenId>> chat_tokens(const LanguageModel& model, const char* messages) {
  MILLRACE_TRY(const std::string text, chat_of_json(model, messages, true));
  return encode_chat(model, text);
}

}  // namespace millrace
