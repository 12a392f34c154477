#include "server/api/old_functions.h"

#include <fmt/format.h>

#include "server/api/custom_tools.h"
#include "server/api/sampling_fields.h"
#include "server/api/tool_fields.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;
using RequestedChoice = RequestedTools::Choice;

bool is_text(const Json& object, const char* key) { return object.contains(key) && object[key].is_string(); }

// {"type": "custom", "custom": {"name", "input"}}
void convert_custom_call(Json& call) {
  if (!call.is_object() || !call.contains("type") || call["type"] != "custom" || !call.contains("custom")) return;
  const Json& custom = call["custom"];
  if (!custom.is_object() || !is_text(custom, "name") || !is_text(custom, "input")) return;
  Json function = {{"name", custom["name"]},
                   {"arguments", custom_arguments(custom["input"].get_ref<const std::string&>())}};
  call["type"] = "function";
  call["function"] = std::move(function);
  call.erase("custom");
}

Wrong read_functions(const Json& value, GenerationRequest& params) {
  if (value.empty()) return std::nullopt;
  if (!params.tools.tools.empty())
    return ApiError::bad("functions", "is the older name of tools; give only one of them");
  params.tools.old_form = true;
  params.tools.parallel = false;
  for (size_t i = 0; i < value.size(); ++i)
    if (auto wrong = add_function(params, fmt::format("functions[{}]", i), value[i])) return wrong;
  return std::nullopt;
}

Wrong read_function_call(const Json& value, GenerationRequest& params) {
  if (value.is_string()) {
    if (value != "none" && value != "auto") return ApiError::bad("function_call", "must be none, auto or {\"name\"}");
    params.tools.choice = value == "none" ? RequestedChoice::none : RequestedChoice::automatic;
  } else {
    if (!is_text(value, "name")) return ApiError::bad("function_call.name", "must be a string");
    params.tools.choice = RequestedChoice::required;
    params.tools.named = value["name"].get<std::string>();
  }
  if (!params.tools.old_form && value != "none" && value != "auto")
    return ApiError::bad("function_call", "needs functions");
  return std::nullopt;
}

}  // namespace

std::vector<Field> old_function_fields() {
  Field functions{"functions", kJsonList, "none",
                  "older name of tools: functions the model may call, {\"name\", \"description\", \"parameters\"}; a "
                  "response has at most one `function_call`"};
  functions.most = 256;
  functions.set = read_functions;
  Field choice{"function_call", kJsonText | kJsonObject, "auto",
               "older name of tool_choice: none, auto, or {\"name\"} of the function that must be called"};
  choice.set = read_function_call;
  return {functions, choice};
}

Json with_tool_calls(const Json& messages) {
  Json out = messages;
  std::string called;  // the id of the last old-style call, for its result
  size_t count = 0;
  for (Json& message : out) {
    if (!message.is_object()) continue;
    if (auto calls = message.find("tool_calls"); calls != message.end() && calls->is_array())
      for (Json& call : *calls) convert_custom_call(call);
    if (auto old = message.find("function_call");
        old != message.end() && old->is_object() && !message.contains("tool_calls")) {
      called = fmt::format("call_{}", count++);
      Json call = {{"id", called}, {"type", "function"}, {"function", std::move(*old)}};
      message["tool_calls"] = Json::array({std::move(call)});
    }
    message.erase("function_call");
    if (is_text(message, "role") && message["role"] == "function" && !called.empty()) {
      message["role"] = "tool";
      if (!message.contains("tool_call_id")) message["tool_call_id"] = called;
    }
  }
  return out;
}

}  // namespace millrace
