#include "run/chat_prompt.h"

#include "base/ordered_json.h"
#include "run/language_model.h"
#include "text/template/unfinished_message.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

std::string plain_text(const Json& messages) {
  std::string text;
  for (const Json& message : messages) {
    if (!message.is_object()) continue;
    const auto role = message.find("role"), content = message.find("content");
    if (content == message.end() || !content->is_string()) continue;
    if (role != message.end() && *role == "user" && !text.empty() && !text.ends_with('\n')) text += '\n';
    text += content->get_ref<const std::string&>();
  }
  return text;
}

}  // namespace

bool has_chat_template(const LanguageModel& model) { return !model.parts().files->chat_template.empty(); }

Result<std::string> chat_text(const LanguageModel& model, const Json& input, bool add_generation_prompt) {
  if (has_chat_template(model))
    return model.apply_chat_template(input.dump(-1, ' ', false, Json::error_handler_t::replace), add_generation_prompt);
  return plain_text(input.is_object() && input.contains("messages") ? input["messages"] : input);
}

Result<std::string> unfinished_chat_text(const LanguageModel& model, const Json& input) {
  return render_unfinished(input, [&](const Json& marked) { return chat_text(model, marked, false); });
}

Result<std::vector<TokenId>> encode_chat(const LanguageModel& model, const std::string& text) {
  return model.encode(text, /*add_special=*/!has_chat_template(model));
}

}  // namespace millrace
