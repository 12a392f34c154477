#include "capi/chat_json.h"

#include "base/json_text.h"
#include "prompt/chat_prompt.h"

namespace millrace {

Result<std::string> chat_of_json(const LanguageModel& model, const char* messages, bool add_generation_prompt) {
  const auto json = parse_json(messages);
  if (!json.is_array() && !json.is_object())
    return Error::user("messages: must be a JSON array of {\"role\", \"content\"} objects, or an object with messages");
  return chat_text(model, json, add_generation_prompt);
}

Result<std::vector<TokenId>> chat_tokens(const LanguageModel& model, const char* messages) {
  MILLRACE_TRY(const std::string text, chat_of_json(model, messages, true));
  return encode_chat(model, text);
}

}  // namespace millrace
