// GLM 4.5 to 5, and Laguna: parameters as pairs of key and value, strings verbatim, everything else as JSON. Newer
// models write no newlines between the tags.
//
//   <tool_call>f
//   <arg_key>key</arg_key>
//   <arg_value>value</arg_value>
//   </tool_call>
#include "text/tools/dialects.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

constexpr std::string_view kGlmBegin = "<tool_call>", kKey = "<arg_key>", kKeyEnd = "</arg_key>",
                           kValue = "<arg_value>", kValueEnd = "</arg_value>", kGlmEnd = "</tool_call>";

class GlmParser final : public CallParser {
 public:
  explicit GlmParser(std::span<const Tool> tools) : call_(tools) {}

  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (place_ == Place::value) end_value(value_.finish(), out);
    if (place_ == Place::name)
      add_piece(out, Kind::text, std::string(kGlmBegin) + held_);
    else if (place_ != Place::text)
      end_call(out);
    place_ = Place::text;
    free_.finish(out);
  }

 private:
  enum class Place { text, name, tag, key, value_tag, value };

  void take(char c, AnswerPieces& out) {
    switch (place_) {
      case Place::text:
        if (!free_.push(c, out)) return;
        held_.clear();
        place_ = Place::name;
        return;
      case Place::name: return take_name(c, out);
      case Place::tag:
      case Place::value_tag: return take_tag(c, out);
      case Place::key:
        held_ += c;
        if (!held_.ends_with(kKeyEnd)) return;
        key_ = held_.substr(0, held_.size() - kKeyEnd.size());
        held_.clear();
        place_ = Place::value_tag;
        return;
      case Place::value:
        if (value_.push(c, call_)) end_value(true, out);
        return;
    }
  }

  // The name ends at the newline or the first tag.
  void take_name(char c, AnswerPieces& out) {
    const bool blank = held_.find_first_not_of(" \n\r\t") == std::string::npos;
    if (c != '<' && (c != '\n' || blank)) {
      held_ += c;
      if (c != '{' && c != '"' && held_.size() < kLongestToolName) return;
      return no_call(out);
    }
    std::string_view name = held_;
    while (!name.empty() && is_json_space(name.front())) name.remove_prefix(1);
    while (!name.empty() && is_json_space(name.back())) name.remove_suffix(1);
    if (name.empty() || name.find_first_of(" \n\t") != std::string_view::npos) {
      held_ += c;
      return no_call(out);
    }
    call_.begin(name, out);
    held_.clear();
    place_ = Place::tag;
    if (c == '<') take(c, out);
  }

  // The next tag after white space. If it is not an expected one, the call ends and the rest is text.
  void take_tag(char c, AnswerPieces& out) {
    if (held_.empty() && is_json_space(c)) return;
    held_ += c;
    if (place_ == Place::value_tag) {
      if (held_ == kValue) {
        value_.begin(key_);
        enter(Place::value);
      }
      if (held_.empty() || kValue.starts_with(held_)) return;
    } else {
      if (held_ == kKey)
        enter(Place::key);
      else if (held_ == kGlmEnd) {
        end_call(out);
        place_ = Place::text;
      }
      if (held_.empty() || kKey.starts_with(held_) || kGlmEnd.starts_with(held_)) return;
    }
    const std::string held = held_;
    end_call(out);
    place_ = Place::text;
    for (char one : held) take(one, out);
  }

  // `closed`: the value has a closing tag.
  void end_value(bool closed, AnswerPieces& out) {
    enter(Place::tag);
    if (!closed) return;
    call_.add(key_, value_.value(), out);
    const std::string behind = value_.behind();
    for (char c : behind) take(c, out);
  }

  void enter(Place place) {
    held_.clear();
    place_ = place;
  }

  void no_call(AnswerPieces& out) {
    add_piece(out, Kind::text, std::string(kGlmBegin) + held_);
    enter(Place::text);
  }

  void end_call(AnswerPieces& out) {
    call_.end(out);
    held_.clear();
    free_.after_call();
  }

  ParameterCall call_;
  ParameterValue value_{{kValueEnd, kKey, kKeyEnd, {kGlmEnd, ""}}};
  FreeText free_{kGlmBegin};
  std::string held_, key_;
  Place place_ = Place::text;
};

bool speaks_glm(std::string_view chat_template) {
  return chat_template.find(kGlmBegin) != std::string_view::npos && chat_template.find(kKey) != std::string_view::npos;
}

std::unique_ptr<CallParser> glm_parser(std::span<const Tool> tools) { return std::make_unique<GlmParser>(tools); }

Json glm_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  const Json line = {{"type", "regex"}, {"pattern", "\\n?"}};
  const ParameterTags form = {kKey,       kKeyEnd, sequence_of({line, literal_text(kValue)}), "", kValueEnd,
                              {"", "\n"}, kGlmEnd};
  Json tags = Json::array();
  for (const Tool& tool : tools)
    tags.push_back({{"type", "tag"},
                    {"begin", std::string(kGlmBegin) + tool.name},
                    {"content", sequence_of({line, parameters_structure(tool, form)})},
                    {"end", ""}});
  return tagged_calls(std::move(tags), kGlmBegin, "\n", wish);
}

constexpr const char* kGlmMarkers[] = {"<tool_call>", "</tool_call>", "<arg_key>",
                                       "</arg_key>",  "<arg_value>",  "</arg_value>"};

}  // namespace

const ToolDialect kGlmTools = {
    "glm",        "keys and values as tags: GLM 4.5 to 5", speaks_glm, glm_parser, glm_structure, kGlmMarkers, false,
    "<tool_call>"};

}  // namespace millrace
