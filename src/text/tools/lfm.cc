// LFM2 and LFM2.5: calls as in Python, with keyword arguments.
//
//   <|tool_call_start|>[f(place='Rome', days=[1, 2]), g()]<|tool_call_end|>
#include <optional>

#include "text/tools/dialects.h"
#include "text/tools/literal_arguments.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

constexpr std::string_view kLfmBegin = "<|tool_call_start|>", kLfmEnd = "<|tool_call_end|>";
constexpr LiteralArguments::Form kPythonForm = {'=', ')', ""};

class LfmParser final : public CallParser {
 public:
  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (arguments_)
      out.push_back({Kind::call_end, ""});
    else if (place_ == Place::list || place_ == Place::name)
      give_up(out);
    for (const char c : closing_.take()) free_.push(c, out);
    held_.clear();
    place_ = Place::text;
    free_.finish(out);
  }

 private:
  enum class Place { text, list, name, closing };

  void take(char c, AnswerPieces& out) {
    if (arguments_) return take_argument(c, out);
    if (place_ == Place::text) {
      if (!free_.push(c, out)) return;
      called_ = false;
      seen_ = kLfmBegin;
      place_ = Place::list;
      return;
    }
    if (place_ == Place::closing) return take_closing(c, out);
    seen_ += c;
    if (place_ == Place::list) {
      if (is_json_space(c)) return;
      place_ = Place::name;
      if (c == '[') return;
    }
    take_name(c, out);
  }

  // "[f(", ", g(" or the end of the list.
  void take_name(char c, AnswerPieces& out) {
    if (held_.empty() && (is_json_space(c) || (c == ',' && called_))) return;
    if (held_.empty() && called_ && (c == ']' || c == '<')) {
      place_ = Place::closing;
      if (c == '<') take_closing(c, out);  // without the bracket
      return;
    }
    held_ += c;
    if (c != '(') {
      const bool named = c != ' ' && c != '\n' && c != '"' && c != '{' && c != '<' && c != ')' && c != ']';
      if (!named || held_.size() > kLongestToolName) give_up(out);
      return;
    }
    held_.pop_back();
    if (held_.empty()) return give_up(out);
    out.push_back({Kind::call, held_});
    held_.clear();
    arguments_.emplace(kPythonForm);
  }

  void take_argument(char c, AnswerPieces& out) {
    std::string json;
    const LiteralArguments::State state = arguments_->push(c, json);
    add_piece(out, Kind::arguments, json);
    if (state == LiteralArguments::State::more) return;
    arguments_.reset();
    out.push_back({Kind::call_end, ""});
    called_ = true;
    free_.after_call();
    place_ = state == LiteralArguments::State::done ? Place::name : Place::text;
    if (place_ == Place::text) take(c, out);
  }

  void take_closing(char c, AnswerPieces& out) {
    if (closing_.push(c)) return;
    place_ = Place::text;
    for (const char one : closing_.take()) take(one, out);
  }

  void give_up(AnswerPieces& out) {
    add_piece(out, Kind::text, called_ ? held_ : seen_);
    held_.clear();
    place_ = Place::text;
  }

  FreeText free_{kLfmBegin};
  ClosingTag closing_{kLfmEnd};
  std::optional<LiteralArguments> arguments_;
  std::string seen_, held_;  // seen_: everything since the marker, until the first call
  Place place_ = Place::text;
  bool called_ = false;
};

// The templates of LFM2.5 do not show the marks of calls, which are the model's own.
bool speaks_lfm(std::string_view chat_template) {
  const auto has = [&](std::string_view part) { return chat_template.find(part) != std::string_view::npos; };
  return has(kLfmBegin) || has("<|tool_list_start|>") || (has("List of tools: [") && has("keep_past_thinking"));
}

std::unique_ptr<CallParser> lfm_parser(std::span<const Tool>) { return std::make_unique<LfmParser>(); }

// Values as JSON: strings in double quotes are literals of Python, too, and the parser reads the constants of both.
Json lfm_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  Json tags = Json::array();
  for (const Tool& tool : tools) {
    const auto value = [&](const std::string&, const Json& schema) { return json_value(tool, schema); };
    Json content = listed_properties(tool.parameters, {", ", "", "=", "", false, value});
    content["definitions"] = definitions_of(tool);
    name_weakened(tool, tool.parameters, "", kObjectKeywords, content);
    tags.push_back({{"type", "tag"}, {"begin", tool.name + "("}, {"content", std::move(content)}, {"end", ")"}});
  }
  Json list = tagged_calls(std::move(tags), "", ", ", {true, wish.parallel});
  return tagged_calls(Json::array({Json{{"type", "tag"},
                                        {"begin", std::string(kLfmBegin) + "["},
                                        {"content", std::move(list)},
                                        {"end", "]" + std::string(kLfmEnd)}}}),
                      kLfmBegin, "", {wish.required, false});
}

constexpr const char* kLfmMarkers[] = {"<|tool_call_start|>", "<|tool_call_end|>"};

std::string python_value(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  const std::string json = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!value.is_string() || json.find_first_of("'\\") != std::string::npos) return json;
  return "'" + json.substr(1, json.size() - 2) + "'";
}

std::string write_lfm_calls(const Json& calls) {
  std::string out;
  for (const Json& call : calls) {
    std::string arguments;
    if (call["arguments"].is_object())
      for (const auto& [key, value] : call["arguments"].items())
        arguments += (arguments.empty() ? "" : ", ") + key + "=" + python_value(value);
    out += (out.empty() ? "" : ", ") + (call["name"].is_string() ? call["name"].get<std::string>() : "") + "(" +
           arguments + ")";
  }
  return std::string(kLfmBegin) + "[" + out + "]" + std::string(kLfmEnd);
}

}  // namespace

const ToolDialect kLfmTools = {"lfm",          "a list of calls as in Python: LFM2 and LFM2.5",
                               speaks_lfm,     lfm_parser,
                               lfm_structure,  kLfmMarkers,
                               false,          "<|tool_call_start|>",
                               nullptr,        nullptr,
                               write_lfm_calls};

}  // namespace millrace
