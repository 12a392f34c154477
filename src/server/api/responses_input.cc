#include "server/api/responses_input.h"

#include <fmt/format.h>

#include "server/api/custom_tools.h"
#include "server/api/message_rules.h"
#include "server/api/tool_fields.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

// A string, or text parts.
Wrong read_parts(const std::string& where, const Json& content, std::string* text) {
  if (content.is_string()) {
    *text = content.get<std::string>();
    return std::nullopt;
  }
  if (content.is_null()) return std::nullopt;
  if (!content.is_array()) return ApiError::bad(where, "must be a string or an array of parts");
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", where, i);
    const Json& part = content[i];
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
      return ApiError::bad(name, "must be an object with a \"type\"");
    const auto& type = part["type"].get_ref<const std::string&>();
    const char* key = type == "refusal" ? "refusal" : "text";
    if (type != "input_text" && type != "output_text" && type != "text" && type != "summary_text" &&
        type != "reasoning_text" && type != "refusal")
      return ApiError::unsupported(name, fmt::format("parts of type '{}' are not supported", type));
    if (!part.contains(key) || !part[key].is_string()) return ApiError::bad(name + "." + key, "must be a string");
    *text += part[key].get_ref<const std::string&>();
  }
  return std::nullopt;
}

Wrong read_string(const Json& item, const std::string& where, const char* key, std::string* text) {
  if (!item.contains(key) || !item[key].is_string()) return ApiError::bad(where + "." + key, "must be a string");
  *text = item[key].get<std::string>();
  return std::nullopt;
}

std::string namespace_of(const Json& call) {
  return call.contains("namespace") && call["namespace"].is_string() ? call["namespace"].get<std::string>() : "";
}

// The assistant message that calls are added to.
Json& assistant_turn(Json& messages) {
  if (messages.empty() || messages.back()["role"] != "assistant")
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  return messages.back();
}

Wrong add_item(const Json& item, Json& messages, const std::string& where) {
  if (!item.is_object()) return ApiError::bad(where, "must be an object");
  std::string type = "message", text;
  if (item.contains("type"))
    if (auto wrong = read_string(item, where, "type", &type)) return wrong;
  if (type == "message") {
    std::string role;
    if (auto wrong = read_string(item, where, "role", &role)) return wrong;
    if (role == "tool" || role == "function")
      return ApiError::bad(where + ".role", "a tool's result must be an item of type function_call_output");
    if (auto wrong = check_role(where + ".role", role)) return wrong;
    if (!item.contains("content")) return ApiError::bad(where + ".content", "is missing");
    if (auto wrong = read_parts(where + ".content", item["content"], &text)) return wrong;
    if (role == "developer") role = "system";
    // Thinking and the message that follows it are one turn.
    if (role == "assistant" && !messages.empty() && messages.back()["role"] == "assistant" &&
        messages.back()["content"] == "" && !messages.back().contains("tool_calls"))
      messages.back()["content"] = std::move(text);
    else
      messages.push_back({{"role", std::move(role)}, {"content", std::move(text)}});
    return std::nullopt;
  }
  if (type == "function_call") {
    std::string id, name, arguments;
    if (auto wrong = read_string(item, where, "call_id", &id)) return wrong;
    if (auto wrong = read_string(item, where, "name", &name)) return wrong;
    if (auto wrong = read_string(item, where, "arguments", &arguments)) return wrong;
    name = flat_tool_name(namespace_of(item), name);
    assistant_turn(messages)["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
    return std::nullopt;
  }
  if (type == "custom_tool_call") {
    std::string id, name, given;
    if (auto wrong = read_string(item, where, "call_id", &id)) return wrong;
    if (auto wrong = read_string(item, where, "name", &name)) return wrong;
    if (auto wrong = read_string(item, where, "input", &given)) return wrong;
    name = flat_tool_name(namespace_of(item), name);
    assistant_turn(messages)["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", custom_arguments(given)}}}});
    return std::nullopt;
  }
  if (type == "function_call_output" || type == "custom_tool_call_output") {
    std::string id;
    if (auto wrong = read_string(item, where, "call_id", &id)) return wrong;
    if (item.contains("output"))
      if (auto wrong = read_parts(where + ".output", item["output"], &text)) return wrong;
    messages.push_back({{"role", "tool"}, {"tool_call_id", std::move(id)}, {"content", std::move(text)}});
    return std::nullopt;
  }
  if (type == "reasoning") {
    for (const char* key : {"content", "summary"})
      if (text.empty() && item.contains(key))
        if (auto wrong = read_parts(where + "." + key, item[key], &text)) return wrong;
    if (!text.empty())
      messages.push_back({{"role", "assistant"}, {"content", ""}, {"reasoning_content", std::move(text)}});
    return std::nullopt;
  }
  if (type == "compaction" || type == "compaction_summary") {  // of /v1/responses/compact
    if (auto wrong = read_string(item, where, "encrypted_content", &text)) return wrong;
    messages.push_back({{"role", "user"}, {"content", "Summary of the conversation so far:\n" + text}});
    return std::nullopt;
  }
  return ApiError::unsupported(where + ".type",
                               fmt::format("items of type '{}' are not supported", type.substr(0, 64)));
}

}  // namespace

void add_stored_items(const Json& input, const std::string& id, Json& items) {
  const Json list = input.is_string() ? Json::array({Json{{"role", "user"}, {"content", input}}}) : input;
  for (Json item : list) {
    if (!item.is_object()) continue;
    const std::string type = item.value("type", "message");
    const char* prefix = type == "message"                ? "msg_"
                         : type == "function_call"        ? "fc_"
                         : type == "function_call_output" ? "fco_"
                         : type == "reasoning"            ? "rs_"
                         : type == "custom_tool_call"     ? "ctc_"
                                                          : "item_";
    Json out = {
        {"id",
         item.contains("id") && item["id"].is_string() ? item["id"] : Json(prefix + id + std::to_string(items.size()))},
        {"type", type}};
    if (type != "reasoning") out["status"] = "completed";
    for (auto& [name, value] : item.items())
      if (!out.contains(name)) out[name] = std::move(value);
    if (type == "message" && out.contains("content") && out["content"].is_string()) {
      const bool by_assistant = out.value("role", "") == "assistant";
      Json part = {{"type", by_assistant ? "output_text" : "input_text"}, {"text", out["content"]}};
      if (by_assistant) part["annotations"] = Json::array();
      out["content"] = Json::array({std::move(part)});
    }
    items.push_back(std::move(out));
  }
}

Wrong add_input_items(const Json& input, Json& messages, const std::string& where) {
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input}});
    return std::nullopt;
  }
  for (size_t i = 0; i < input.size(); ++i)
    if (auto wrong = add_item(input[i], messages, fmt::format("{}[{}]", where, i))) return wrong;
  return std::nullopt;
}

}  // namespace millrace
