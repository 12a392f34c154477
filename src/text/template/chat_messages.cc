#include "text/template/chat_messages.h"

#include <fmt/format.h>

#include "base/json_text.h"
#include "base/ordered_json.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// Replaces "arguments": "{...}" by the parsed object; anything that is not a JSON object is left unchanged.
void parse_arguments(Json& message) {
  auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    if (!call.is_object()) continue;
    auto function = call.find("function");
    Json& holder = function != call.end() && function->is_object() ? *function : call;
    auto arguments = holder.find("arguments");
    if (arguments == holder.end() || !arguments->is_string()) continue;
    Json parsed = parse_json(arguments->get_ref<const std::string&>());
    if (parsed.is_object()) *arguments = std::move(parsed);
  }
}

Result<void> check_array(const char* name, const Json* value) {
  if (value && !value->is_null() && !value->is_array()) {
    return Error::user(fmt::format("{} must be an array, not {}", name, value->type_name()));
  }
  return {};
}

}  // namespace

const std::string_view kFallbackChatTemplate =
    "{%- for message in messages -%}\n"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "{{- '<|im_start|>assistant\\n' -}}\n"
    "{%- endif -%}\n";

Json to_json(const std::vector<ChatMessage>& messages) {
  Json out = Json::array();
  for (const ChatMessage& m : messages) out.push_back(Json{{"role", m.role}, {"content", m.content}});
  return out;
}

Result<Json> chat_context(const Json& messages, const ChatContextOptions& options) {
  if (!messages.is_array()) {
    return Error::user(fmt::format("messages must be an array of objects, not {}", messages.type_name()));
  }
  MILLRACE_TRY_VOID(check_array("tools", options.tools));
  MILLRACE_TRY_VOID(check_array("documents", options.documents));
  Json context = Json::object();
  context["messages"] = messages;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      return Error::user(fmt::format("messages[{}] must be an object with a string 'role'", i));
    }
    if (options.parse_tool_arguments) parse_arguments(context["messages"][i]);
  }
  // Present but null if there are none, as in Hugging Face.
  context["tools"] = options.tools ? *options.tools : Json();
  context["documents"] = options.documents ? *options.documents : Json();
  context["add_generation_prompt"] = options.add_generation_prompt;
  context["bos_token"] = options.bos_token;
  context["eos_token"] = options.eos_token;
  if (options.extra && !options.extra->is_null()) {
    if (!options.extra->is_object()) {
      return Error::user(fmt::format("template variables must be an object, not {}", options.extra->type_name()));
    }
    for (const auto& [name, value] : options.extra->items()) context[name] = value;
  }
  return context;
}

}  // namespace millrace
