// Tools for templates without tool support: described in the system prompt, with earlier calls and their results
// rendered as text.
#include "base/json_text.h"
#include "text/tools/dialects.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

std::string one_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// The calls of a message as {name, arguments}; arguments that are the text of an object become that object.
Json calls_of(const Json& message) {
  Json out = Json::array();
  if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) return out;
  for (const Json& call : message["tool_calls"]) {
    const Json& function = call.is_object() && call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("name")) continue;
    Json arguments = function.contains("arguments") ? function["arguments"] : Json::object();
    if (arguments.is_string())
      if (Json parsed = parse_json(arguments.get_ref<const std::string&>()); parsed.is_object())
        arguments = std::move(parsed);
    out.push_back({{"name", function["name"]}, {"arguments", std::move(arguments)}});
  }
  return out;
}

std::string text_content(const Json& message) {
  return message.contains("content") && message["content"].is_string() ? message["content"].get<std::string>() : "";
}

}  // namespace

std::string describe_tools(std::span<const Tool> tools, const ToolChoice& wish) {
  std::string out = "You can call these tools, described by JSON Schemas:\n<tools>\n";
  for (const Tool& tool : tools) {
    Json one = {{"name", tool.name}};
    if (!tool.description.empty()) one["description"] = tool.description;
    one["parameters"] = tool.parameters;
    out += one_line(one) + "\n";
  }
  out += "</tools>\nTo call one, write\n<tool_call>\n{\"name\": NAME, \"arguments\": ARGUMENTS}\n</tool_call>\n";
  if (wish.required) out += "Answer with such a call alone.\n";
  return out;
}

Json describe_calls(const Json& messages) {
  Json out = Json::array();
  for (const Json& message : messages) {
    Json one = message;
    std::string text = text_content(message);
    if (message.contains("tool_calls") && message["tool_calls"].is_array()) {
      for (const Json& call : calls_of(message))
        text += (text.empty() ? "" : "\n") + ("<tool_call>\n" + one_line(call)) + "\n</tool_call>";
      one.erase("tool_calls");
    }
    if (message.contains("role") && message["role"] == "tool") {
      one = {{"role", "user"}};
      text = "<tool_response>\n" + text + "\n</tool_response>";
    }
    one["content"] = std::move(text);
    // Templates expect alternating roles, so the results of one turn become one message.
    if (!out.empty() && message.contains("role") && message["role"] == "tool" && out.back()["role"] == "user" &&
        out.back()["content"].get_ref<const std::string&>().ends_with("</tool_response>"))
      out.back()["content"] = out.back()["content"].get<std::string>() + "\n" + one["content"].get<std::string>();
    else
      out.push_back(std::move(one));
  }
  return out;
}

void write_calls(CallWriter writer, Json& messages) {
  for (Json& message : messages) {
    const Json calls = calls_of(message);
    if (calls.empty()) continue;
    message["content"] = text_content(message) + writer(calls);
    message.erase("tool_calls");
  }
}

}  // namespace millrace
