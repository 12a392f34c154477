// Converts OpenAI's messages to those of a chat template.
#include <fmt/format.h>

#include "server/api/message_rules.h"
#include "server/api/old_functions.h"
#include "server/api/openai.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

Wrong read_content(const std::string& where, const Json& content, std::string* text) {
  if (content.is_string()) {
    *text = content.get<std::string>();
    return std::nullopt;
  }
  if (content.is_null()) return std::nullopt;
  if (!content.is_array()) return ApiError::bad(where, "must be a string or an array of parts");
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string name = fmt::format("{}[{}]", where, i);
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
      return ApiError::bad(name, "must be an object with a \"type\"");
    const auto& type = part["type"].get_ref<const std::string&>();
    if (type == "thinking" || type == "reasoning") continue;
    const char* key = type == "refusal" ? "refusal" : "text";
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal")
      return ApiError::unsupported(name, fmt::format("parts of type '{}' are not supported", type));
    if (!part.contains(key) || !part[key].is_string()) return ApiError::bad(name + "." + key, "must be a string");
    *text += part[key].get_ref<const std::string&>();
  }
  return std::nullopt;
}

// Tool calls of an earlier answer. Arguments are an object, or a string that holds one.
Wrong check_calls(const std::string& where, const Json& calls) {
  if (!calls.is_array()) return ApiError::bad(where, "must be an array");
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", where, i);
    if (!calls[i].is_object() || !calls[i].contains("function") || !calls[i]["function"].is_object())
      return ApiError::bad(name + ".function", "must be an object");
    const Json& function = calls[i]["function"];
    if (!function.contains("name") || !function["name"].is_string())
      return ApiError::bad(name + ".function.name", "must be a string");
    if (function.contains("arguments") && !function["arguments"].is_string() && !function["arguments"].is_object())
      return ApiError::bad(name + ".function.arguments", "must be a string that holds a JSON object");
  }
  return std::nullopt;
}

}  // namespace

Wrong read_messages(const Json& given, GenerationRequest& params) {
  const Json value = with_tool_calls(given);
  if (value.empty()) return ApiError::bad("messages", "is empty");
  if (params.messages.is_null()) params.messages = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    const Json& message = value[i];
    if (!message.is_object()) return ApiError::bad(where, "must be an object");
    if (!message.contains("role") || !message["role"].is_string())
      return ApiError::bad(where + ".role", "must be a string");
    if (auto wrong = check_role(where + ".role", message["role"].get_ref<const std::string&>())) return wrong;
    std::string text;
    if (message.contains("content"))
      if (auto wrong = read_content(where + ".content", message["content"], &text)) return wrong;
    Json read = message;
    if (read["role"] == "developer") read["role"] = "system";
    read["content"] = std::move(text);
    if (auto calls = read.find("tool_calls"); calls != read.end()) {
      if (!calls->is_null())
        if (auto wrong = check_calls(where + ".tool_calls", *calls)) return wrong;
      if (calls->is_null() || calls->empty()) read.erase("tool_calls");
    }
    for (const char* other : {"reasoning", "thinking"})  // earlier thinking, under the name used by templates
      if (read.contains(other) && read[other].is_string() && !read.contains("reasoning_content"))
        read["reasoning_content"] = read[other];
    params.messages.push_back(std::move(read));
  }
  return std::nullopt;
}

}  // namespace millrace
