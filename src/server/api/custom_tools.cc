#include "server/api/custom_tools.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/api/tool_fields.h"
#include "text/grammar/lark.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

constexpr size_t kMaxDefinition = 64 << 10;
constexpr size_t kLongestEscape = 12;  // a surrogate pair

// Returns a regex for the whole input.
Wrong read_grammar(const std::string& where, const Json& grammar, std::string* pattern) {
  const auto text = [&](const char* key) {
    return grammar.contains(key) && grammar[key].is_string() ? grammar[key].get<std::string>() : std::string();
  };
  const std::string syntax = text("syntax"), definition = text("definition");
  if (syntax != "regex" && syntax != "lark") return ApiError::bad(where + ".syntax", "must be regex or lark");
  if (definition.empty() || definition.size() > kMaxDefinition)
    return ApiError::bad(where + ".definition", fmt::format("must be a string of 1 to {} bytes", kMaxDefinition));
  if (syntax == "regex") {
    *pattern = definition;
    return std::nullopt;
  }
  auto made = lark_to_regex(definition);
  if (!made.ok()) return ApiError::bad(where + ".definition", made.error().message);
  *pattern = std::move(*made);
  return std::nullopt;
}

}  // namespace

Wrong add_custom_tool(GenerationRequest& params, const std::string& where, const Json& tool) {
  if (!tool.is_object()) return ApiError::bad(where, "must be an object");
  const auto text = [&](const char* key) {
    return tool.contains(key) && tool[key].is_string() ? tool[key].get<std::string>() : std::string();
  };
  Json input = {{"type", "string"}, {"description", "the tool's whole input, as text"}};
  if (tool.contains("format") && !tool["format"].is_null()) {
    const Json& format = tool["format"];
    const std::string inner = where + ".format";
    if (!format.is_object() || !format.contains("type") || (format["type"] != "text" && format["type"] != "grammar"))
      return ApiError::bad(inner + ".type", "must be text or grammar");
    if (format["type"] == "grammar") {
      const bool nested = format.contains("grammar");
      if (nested && !format["grammar"].is_object()) return ApiError::bad(inner + ".grammar", "must be an object");
      std::string pattern;
      if (auto wrong = read_grammar(nested ? inner + ".grammar" : inner, nested ? format["grammar"] : format, &pattern))
        return wrong;
      input["pattern"] = "^(?:" + pattern + ")$";
    }
  }
  Json parameters = {{"type", "object"},
                     {"properties", {{"input", std::move(input)}}},
                     {"required", {"input"}},
                     {"additionalProperties", false}};
  if (auto wrong = add_tool(params, where, text("name"), text("description"), std::move(parameters), false))
    return wrong;
  params.tools.custom.push_back(text("name"));
  return std::nullopt;
}

std::string custom_arguments(const std::string& input) { return to_text(Json{{"input", input}}); }

std::string custom_input(const std::string& arguments) {
  const auto read = [](const std::string& text) -> std::optional<std::string> {
    const Json json = parse_json(text);
    if (!json.is_object() || !json.contains("input") || !json["input"].is_string()) return std::nullopt;
    return json["input"].get<std::string>();
  };
  if (auto whole = read(arguments)) return *whole;
  for (size_t less = 0; less <= std::min(kLongestEscape, arguments.size()); ++less)  // drops an escape that was cut off
    if (auto part = read(arguments.substr(0, arguments.size() - less) + "\"}")) return *part;
  return "";
}

bool is_custom(const GenerationRequest& params, const std::string& name) {
  return std::ranges::find(params.tools.custom, name) != params.tools.custom.end();
}

}  // namespace millrace
