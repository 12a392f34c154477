// Gemma 4: a call with its arguments in a notation of its own: keys without quotes, strings between tokens.
//
//   <|tool_call>call:f{days:[1,2],deep:{a:true},place:<|"|>Rome<|"|>}<tool_call|>
#include <optional>
#include <set>

#include "text/tools/dialects.h"
#include "text/tools/literal_arguments.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

constexpr std::string_view kGemmaBegin = "<|tool_call>", kGemmaEnd = "<tool_call|>",
                           kGemmaCall = "call:", kGemmaQuote = "<|\"|>";
constexpr LiteralArguments::Form kGemmaForm = {':', '}', kGemmaQuote};
constexpr LiteralArguments::Form kGemmaCallForm = {'=', ')', kGemmaQuote};  // f(place=...), which models also write

class GemmaParser final : public CallParser {
 public:
  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (arguments_)
      out.push_back({Kind::call_end, ""});
    else if (place_ == Place::name)
      add_piece(out, Kind::text, std::string(kGemmaBegin) + held_);
    for (const char c : closing_.take()) free_.push(c, out);
    held_.clear();
    place_ = Place::text;
    free_.finish(out);
  }

 private:
  enum class Place { text, name, closing };

  void take(char c, AnswerPieces& out) {
    if (arguments_) return take_argument(c, out);
    if (place_ == Place::text) {
      if (free_.push(c, out)) place_ = Place::name;
      return;
    }
    if (place_ == Place::closing) return take_closing(c, out);
    held_ += c;
    const std::string_view begin = held_.starts_with(':') ? ":" : kGemmaCall;  // models leave the word out
    if ((c == '{' || c == '(') && held_.starts_with(begin) && held_.size() > begin.size() + 1) {
      out.push_back({Kind::call, held_.substr(begin.size(), held_.size() - begin.size() - 1)});
      held_.clear();
      arguments_.emplace(c == '{' ? kGemmaForm : kGemmaCallForm);
      return;
    }
    const bool named = c != '{' && c != '(' && c != ' ' && c != '\n' && c != '<' && c != '"';
    if (named && held_.size() < kLongestToolName && (begin.starts_with(held_) || held_.starts_with(begin))) return;
    add_piece(out, Kind::text, std::string(kGemmaBegin) + held_);
    held_.clear();
    place_ = Place::text;
  }

  void take_argument(char c, AnswerPieces& out) {
    std::string json;
    const LiteralArguments::State state = arguments_->push(c, json);
    add_piece(out, Kind::arguments, json);
    if (state == LiteralArguments::State::more) return;
    arguments_.reset();
    out.push_back({Kind::call_end, ""});
    free_.after_call();
    place_ = state == LiteralArguments::State::done ? Place::closing : Place::text;
    if (place_ == Place::text) take(c, out);
  }

  void take_closing(char c, AnswerPieces& out) {
    if (closing_.push(c)) return;
    place_ = Place::text;
    for (const char one : closing_.take()) take(one, out);
  }

  FreeText free_{kGemmaBegin};
  ClosingTag closing_{kGemmaEnd};
  std::optional<LiteralArguments> arguments_;
  std::string held_;
  Place place_ = Place::text;
};

bool speaks_gemma(std::string_view chat_template) {
  return chat_template.find(kGemmaBegin) != std::string_view::npos &&
         chat_template.find(kGemmaCall) != std::string_view::npos;
}

std::unique_ptr<CallParser> gemma_parser(std::span<const Tool>) { return std::make_unique<GemmaParser>(); }

// A value that the schema allows, in this notation.
std::string gemma_text(const Json& value) {
  if (value.is_string()) return std::string(kGemmaQuote) + value.get<std::string>() + std::string(kGemmaQuote);
  if (!value.is_structured()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  for (const auto& [key, one] : value.items())
    out += (out.empty() ? "" : ",") + (value.is_object() ? key + ":" : "") + gemma_text(one);
  return (value.is_object() ? "{" : "[") + out + (value.is_object() ? "}" : "]");
}

Json either_of(Json ways) { return {{"type", "or"}, {"elements", std::move(ways)}}; }

Json gemma_string() {
  return sequence_of({literal_text(kGemmaQuote), Json{{"type", "text_until"}, {"end", kGemmaQuote}}});
}

// Any value, of objects and lists only those without further ones.
Json gemma_any_value() {
  const std::string scalar = "(<\\|\"\\|>[^<]*<\\|\"\\|>|-?[0-9]+(\\.[0-9]+)?|true|false|null)";
  const std::string pair = "[A-Za-z_][A-Za-z0-9_]*:" + scalar;
  return {{"type", "regex"},
          {"pattern", scalar + "|\\[(" + scalar + "(," + scalar + ")*)?\\]|\\{(" + pair + "(," + pair + ")*)?\\}"}};
}

Json gemma_value(const Tool& tool, const Json& schema, const std::string& place);

// The properties between `open` and `close`.
Json gemma_object(const Tool& tool, const Json& schema, const std::string& place, std::string open = "{",
                  std::string close = "}") {
  const auto value = [&](const std::string& key, const Json& one) {
    return gemma_value(tool, one, place + "/properties/" + key);
  };
  Json out = listed_properties(schema, {",", std::move(open), ":", std::move(close), true, value});
  name_weakened(tool, schema, place, kObjectKeywords, out);
  return out;
}

Json gemma_list(const Tool& tool, const Json& schema, const std::string& place) {
  const bool filled = schema.contains("minItems") && schema["minItems"] != 0;
  Json item = schema.contains("items") ? gemma_value(tool, schema["items"], place + "/items") : gemma_any_value();
  Json out = {{"type", "listed"}, {"separator", ","}, {"open", "["}, {"close", "]"}, {"repeated", true}};
  out["items"] = Json::array({Json{{"content", std::move(item)}, {"required", filled}}});
  name_weakened(tool, schema, place, {"maxItems", "prefixItems", "contains", "uniqueItems"}, out);
  if (filled && schema["minItems"] != 1) name_weakened(tool, schema, place, {"minItems"}, out);
  return out;
}

Json gemma_typed(const Tool& tool, const Json& schema, const std::string& type, const std::string& place) {
  if (type == "string") {
    Json out = gemma_string();
    name_weakened(tool, schema, place, {"pattern", "format", "minLength", "maxLength"}, out);
    return out;
  }
  if (type == "array") return gemma_list(tool, schema, place);
  if (type != "object") {
    Json plain = json_value(tool, schema);
    plain["json_schema"]["type"] = type;
    return plain;
  }
  if (!schema.contains("properties")) {
    Json out = gemma_any_value();
    name_weakened(tool, schema, place, {"type"}, out);
    return out;
  }
  return gemma_object(tool, schema, place);
}

Json gemma_value(const Tool& tool, const Json& schema, const std::string& place) {
  Json ways = Json::array();
  if (schema.is_object() && (schema.contains("const") || (schema.contains("enum") && schema["enum"].is_array()))) {
    for (const Json& one : schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"])
      ways.push_back(literal_text(gemma_text(one)));
  } else if (schema.is_object() && schema.contains("type")) {
    std::set<std::string> types;  // a type that is named twice would double the structure at every level
    for (const Json& type : schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]}))
      if (type.is_string() && types.insert(type.get<std::string>()).second)
        ways.push_back(gemma_typed(tool, schema, type.get<std::string>(), place));
  }
  if (ways.size() == 1) return ways[0];
  if (!ways.empty()) return either_of(std::move(ways));
  Json out = gemma_any_value();
  name_weakened(tool, schema, place, {"$ref", "allOf", "anyOf", "oneOf", "not", "if"}, out);
  return out;
}

Json gemma_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  Json tags = Json::array();
  for (const Tool& tool : tools) {
    Json content = gemma_object(tool, tool.parameters, "", "", "");
    content["definitions"] = definitions_of(tool);
    tags.push_back({{"type", "tag"},
                    {"begin", std::string(kGemmaBegin) + std::string(kGemmaCall) + tool.name + "{"},
                    {"content", std::move(content)},
                    {"end", "}" + std::string(kGemmaEnd)}});
  }
  return tagged_calls(std::move(tags), kGemmaBegin, "", wish);
}

constexpr const char* kGemmaMarkers[] = {"<|tool_call>", "<tool_call|>", "<|\"|>", "<|channel>", "<channel|>"};

}  // namespace

const ToolDialect kGemmaTools = {"gemma_call",    "arguments with strings between tokens: Gemma 4",
                                 speaks_gemma,    gemma_parser,
                                 gemma_structure, kGemmaMarkers,
                                 false,           "<|tool_call>"};

}  // namespace millrace
