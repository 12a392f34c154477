#include "server/api/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/api/custom_tools.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;
using RequestedChoice = RequestedTools::Choice;

constexpr size_t kMaxTools = 256;
constexpr size_t kMaxName = 128;

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == ':' || c == '/';
  });
}

// Tools that the provider runs, or that a client runs after calls of special types. Requests permit them; answers
// without them are valid.
bool is_hosted(const Json& type) {
  static constexpr std::string_view kHosted[] = {
      "file_search", "code_interpreter", "computer",    "image_generation",         "mcp", "local_shell",
      "shell",       "apply_patch",      "tool_search", "programmatic_tool_calling"};
  if (!type.is_string()) return false;
  const auto& name = type.get_ref<const std::string&>();
  return name.starts_with("web_search") || name.starts_with("computer_use") ||
         std::ranges::find(kHosted, name) != std::end(kHosted);
}

// {"type": "namespace", "name", "tools"}
Wrong read_namespace(GenerationRequest& params, const std::string& where, const Json& space) {
  if (!space.contains("name") || !space["name"].is_string()) return ApiError::bad(where + ".name", "must be a string");
  if (!space.contains("tools") || !space["tools"].is_array() || space["tools"].size() > kMaxTools)
    return ApiError::bad(where + ".tools", fmt::format("must be an array of at most {} tools", kMaxTools));
  const auto& name = space["name"].get_ref<const std::string&>();
  for (size_t i = 0; i < space["tools"].size(); ++i) {
    const std::string inner = fmt::format("{}.tools[{}]", where, i);
    Json tool = space["tools"][i];
    if (!tool.is_object() || !tool.contains("name") || !tool["name"].is_string())
      return ApiError::bad(inner + ".name", "must be a string");
    const bool custom = tool.contains("type") && tool["type"] == "custom";
    if (!custom && tool.contains("type") && tool["type"] != "function")
      return ApiError::unsupported(inner + ".type", "only tools of type 'function' and 'custom' are supported");
    const std::string own = tool["name"], flat = flat_tool_name(name, own);
    tool["name"] = flat;
    if (auto wrong = custom ? add_custom_tool(params, inner, tool) : add_function(params, inner, tool)) return wrong;
    params.tools.namespaced.push_back({flat, name, own});
  }
  return std::nullopt;
}

Wrong read_tools(GenerationRequest& params, const std::string& field, const Json& value, bool flat) {
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", field, i);
    const Json& tool = value[i];
    if (!tool.is_object()) return ApiError::bad(where, "must be an object");
    if (tool.contains("type") && tool["type"] == "custom") {
      if (!flat && !tool.contains("custom")) return ApiError::bad(where + ".custom", "is missing");
      if (auto wrong =
              flat ? add_custom_tool(params, where, tool) : add_custom_tool(params, where + ".custom", tool["custom"]))
        return wrong;
      continue;
    }
    if (flat && tool.contains("type") && tool["type"] == "namespace") {
      if (auto wrong = read_namespace(params, where, tool)) return wrong;
      continue;
    }
    if (flat && tool.contains("type") && is_hosted(tool["type"])) {
      params.dropped.push_back(fmt::format("{}: tools of type '{}' are not available on this server", where,
                                           tool["type"].get_ref<const std::string&>()));
      continue;
    }
    if (tool.contains("type") && tool["type"] != "function")
      return ApiError::unsupported(where + ".type", "only tools of type 'function' and 'custom' are supported");
    if (!flat && !tool.contains("function")) return ApiError::bad(where + ".function", "is missing");
    if (auto wrong =
            flat ? add_function(params, where, tool) : add_function(params, where + ".function", tool["function"]))
      return wrong;
  }
  return std::nullopt;
}

// {"type": "function" or "custom", "name"}, or with the name nested in an object named after the type.
Wrong read_named(const std::string& where, const Json& value, std::string* name) {
  if (!value.is_object()) return ApiError::bad(where, "must be an object");
  const std::string type =
      value.contains("type") && value["type"].is_string() ? value["type"].get<std::string>() : "function";
  if (type != "function" && type != "custom")
    return ApiError::unsupported(where + ".type",
                                 fmt::format("tools of type '{}' are not supported", type.substr(0, 64)));
  const Json& named = value.contains(type) ? value[type] : value;
  if (!named.is_object() || !named.contains("name") || !named["name"].is_string())
    return ApiError::bad(where + "." + type + ".name", "must be a string");
  *name = named["name"].get<std::string>();
  if (named.contains("namespace") && named["namespace"].is_string())
    *name = flat_tool_name(named["namespace"].get_ref<const std::string&>(), *name);
  return std::nullopt;
}

// {"type": "allowed_tools", "mode", "tools"}, or with mode and tools nested in an object "allowed_tools".
Wrong read_allowed(GenerationRequest& params, const std::string& field, const Json& value) {
  const bool nested = value.contains("allowed_tools");
  const Json& allowed = nested ? value["allowed_tools"] : value;
  const std::string where = nested ? field + ".allowed_tools" : field;
  if (!allowed.is_object()) return ApiError::bad(where, "must be an object");
  if (!allowed.contains("mode") || (allowed["mode"] != "auto" && allowed["mode"] != "required"))
    return ApiError::bad(where + ".mode", "must be auto or required");
  if (!allowed.contains("tools") || !allowed["tools"].is_array() || allowed["tools"].empty() ||
      allowed["tools"].size() > kMaxTools)
    return ApiError::bad(where + ".tools", fmt::format("must be an array of 1 to {} tools", kMaxTools));
  params.tools.choice = allowed["mode"] == "required" ? RequestedChoice::required : RequestedChoice::automatic;
  params.tools.allowed.emplace();
  for (size_t i = 0; i < allowed["tools"].size(); ++i) {
    std::string name;
    if (auto wrong = read_named(fmt::format("{}.tools[{}]", where, i), allowed["tools"][i], &name)) return wrong;
    params.tools.allowed->push_back(std::move(name));
  }
  return std::nullopt;
}

Wrong read_choice(GenerationRequest& params, const std::string& field, const Json& value) {
  RequestedTools& tools = params.tools;
  tools.choice_given = value != "auto";  // the default asks for nothing
  if (value.is_string()) {
    if (value == "auto")
      tools.choice = RequestedChoice::automatic;
    else if (value == "none")
      tools.choice = RequestedChoice::none;
    else if (value == "required")
      tools.choice = RequestedChoice::required;
    else
      return ApiError::bad(field, "must be auto, none, required or a function");
    return std::nullopt;
  }
  if (value.contains("type") && value["type"] == "allowed_tools") return read_allowed(params, field, value);
  if (auto wrong = read_named(field, value, &tools.named)) return wrong;
  tools.choice = RequestedChoice::required;
  return std::nullopt;
}

std::vector<Field> fields(bool flat) {
  Field tools{"tools", kJsonList, "none",
              flat ? "tools the model may call: {\"type\": \"function\", \"name\", \"description\", \"parameters\"}, "
                     "or {\"type\": \"custom\", \"name\", \"description\", \"format\"}, whose input is text, or "
                     "{\"type\": \"namespace\", \"name\", \"tools\"}; tools that the provider runs are left out, and "
                     "millrace.dropped names them"
                   : "tools the model may call: {\"type\": \"function\", \"function\": {\"name\", \"description\", "
                     "\"parameters\"}}, or {\"type\": \"custom\", \"custom\": {\"name\", \"description\", "
                     "\"format\"}}, whose input is text"};
  tools.most = kMaxTools;
  tools.set = [flat](const Json& value, GenerationRequest& params) -> Wrong {
    return read_tools(params, "tools", value, flat);
  };
  Field choice{"tool_choice", kJsonText | kJsonObject, "auto",
               "auto: the model may call tools; none; required: it must call one; a tool: it must call that one; "
               "{\"type\": \"allowed_tools\"}: it may call only those. Arguments of calls match the tool's schema"};
  choice.set = [](const Json& value, GenerationRequest& params) { return read_choice(params, "tool_choice", value); };
  Field parallel{"parallel_tool_calls", kJsonBoolean, "true", "a response may contain more than one call"};
  parallel.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.tools.parallel = value.get<bool>();
    return std::nullopt;
  };
  return {tools, choice, parallel};
}

Wrong check_allowed(const RequestedTools& tools) {
  for (const std::string& name : *tools.allowed)
    if (std::ranges::find(tools.tools, name, &Tool::name) == tools.tools.end())
      return ApiError::bad("tool_choice", fmt::format("there is no tool '{}' to allow", name.substr(0, kMaxName)));
  return std::nullopt;
}

}  // namespace

std::string flat_tool_name(const std::string& space, const std::string& name) {
  return space.empty() ? name : space + "__" + name;
}

void name_call(const GenerationRequest& params, const std::string& name, Json& call) {
  const auto found = std::ranges::find(params.tools.namespaced, name, &RequestedTools::Namespaced::flat);
  const bool in_namespace = found != params.tools.namespaced.end();
  call["name"] = in_namespace ? found->name : name;
  if (in_namespace) call["namespace"] = found->space;
}

Wrong add_function(GenerationRequest& params, const std::string& where, const Json& function) {
  if (!function.is_object()) return ApiError::bad(where, "must be an object");
  if (!function.contains("name") || !function["name"].is_string())
    return ApiError::bad(where + ".name", "must be a string");
  const auto text = [&](const char* key) {
    return function.contains(key) && function[key].is_string() ? function[key].get<std::string>() : std::string();
  };
  Json parameters = function.contains("parameters") ? function["parameters"] : Json();
  return add_tool(params, where, text("name"), text("description"), std::move(parameters),
                  function.contains("strict") && function["strict"] == true);
}

Wrong add_tool(GenerationRequest& params, const std::string& where, const std::string& name,
               const std::string& description, Json parameters, bool strict) {
  if (!is_name(name))
    return ApiError::bad(where + ".name",
                         fmt::format("must have 1 to {} letters, digits and '_', '-', '.', ':', '/'", kMaxName));
  for (const Tool& tool : params.tools.tools)
    if (tool.name == name) return ApiError::bad(where + ".name", fmt::format("'{}' is used twice", name));
  if (!parameters.is_null() && !parameters.is_object())
    return ApiError::bad(where + ".parameters", "must be a JSON Schema");
  if (parameters.is_null() || parameters.empty()) parameters = {{"type", "object"}, {"properties", Json::object()}};
  if (params.tools.definitions.is_null()) params.tools.definitions = Json::array();
  Json function = {{"name", name}, {"description", description}, {"parameters", parameters}};
  if (strict) function["strict"] = true;
  params.tools.definitions.push_back({{"type", "function"}, {"function", std::move(function)}});
  // Do not allow undeclared arguments, unless the schema does.
  if (!parameters.contains("type")) parameters["type"] = "object";
  const bool composed = parameters.contains("$ref") || parameters.contains("anyOf") || parameters.contains("oneOf") ||
                        parameters.contains("allOf") || parameters.contains("patternProperties");
  if (!composed && !parameters.contains("additionalProperties")) parameters["additionalProperties"] = false;
  params.tools.tools.push_back({name, description, std::move(parameters)});
  return std::nullopt;
}

Wrong check_tools(GenerationRequest& params) {
  RequestedTools& tools = params.tools;
  if (tools.choice_given && tools.tools.empty() && tools.choice != RequestedChoice::none)
    return ApiError::bad("tool_choice", "needs tools");
  if (params.constrains_thinking && tools.any())
    return ApiError::bad(params.constraint_field, "cannot be combined with tools");
  if (tools.allowed)
    if (auto wrong = check_allowed(tools)) return wrong;
  if (tools.named.empty()) return std::nullopt;
  const auto found = std::ranges::find(tools.tools, tools.named, &Tool::name);
  if (found == tools.tools.end())
    return ApiError::bad(tools.old_form ? "function_call" : "tool_choice",
                         fmt::format("there is no tool '{}'", tools.named.substr(0, kMaxName)));
  tools.tools = {Tool(*found)};
  tools.parallel = false;
  return std::nullopt;
}

std::vector<Field> tool_fields() { return fields(false); }

std::vector<Field> flat_tool_fields() { return fields(true); }

Field ollama_tools_field() {
  Field tools = fields(false)[0];
  tools.set = [](const Json& value, GenerationRequest& params) { return read_tools(params, "tools", value, false); };
  return tools;
}

void set_reasoning_effort(GenerationRequest& params, const std::string& effort) {
  params.variables["reasoning_effort"] = effort;
  if (!params.variables.contains("enable_thinking")) params.variables["enable_thinking"] = effort != "none";
}

Field verbosity_field(const std::string& name) {
  Field verbosity{name, kJsonText, "medium", "how long answers are, for chat templates that support it"};
  verbosity.choices = {"low", "medium", "high"};
  verbosity.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.variables["verbosity"] = value.get<std::string>();
    return std::nullopt;
  };
  return verbosity;
}

std::vector<Field> reasoning_fields() {
  Field effort{"reasoning_effort", kJsonText, "template default",
               "how much to think, for chat templates that support it; none: not at all, if the template can"};
  effort.choices = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  effort.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    set_reasoning_effort(params, value.get<std::string>());
    return std::nullopt;
  };
  Field format{"reasoning_format", kJsonText, "auto",
               "thinking: auto and deepseek: returned in reasoning_content; none: left in the text with its markers"};
  format.choices = {"none", "deepseek", "deepseek-legacy", "auto"};
  format.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.reasoning.split = value != "none";
    return std::nullopt;
  };
  Field include{"include_reasoning", kJsonBoolean, "absent",
                "true: thinking is returned in the field reasoning, as in vLLM; false: it is left out"};
  include.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.reasoning.shown = value.get<bool>();
    params.reasoning.in_vllm_name = value.get<bool>();
    return std::nullopt;
  };
  Field enable{"enable_thinking", kJsonBoolean, "template default",
               "whether to think, for chat templates that support it"};
  enable.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.variables["enable_thinking"] = value.get<bool>();
    return std::nullopt;
  };
  Field budget{"thinking_token_budget", kJsonInteger, "none",
               "maximum thinking tokens, after which thinking is ended, if the chat template marks it; -1: no limit"};
  budget.min = -1;
  budget.max = 2147483647;
  budget.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.reasoning.budget = value.get<int64_t>();
    return std::nullopt;
  };
  return {effort, format, include, enable, budget};
}

}  // namespace millrace
