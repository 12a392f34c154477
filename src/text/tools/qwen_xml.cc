// Qwen3-Coder and Qwen 3.5: parameters as tags, strings verbatim, everything else as JSON.
//
//   <tool_call>
//   <function=f>
//   <parameter=key>
//   value
//   </parameter>
//   </function>
//   </tool_call>
#include "text/tools/dialects.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

constexpr std::string_view kQwenXmlBegin = "<tool_call>",
                           kFunction = "<function=", kParameter = "<parameter=", kParameterEnd = "</parameter>",
                           kFunctionEnd = "</function>", kQwenXmlEnd = "</tool_call>";

class QwenXmlParser final : public CallParser {
 public:
  explicit QwenXmlParser(std::span<const Tool> tools) : call_(tools) {}

  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (place_ == Place::value) end_value(value_.finish(), out);
    if (place_ == Place::function)
      add_piece(out, Kind::text, std::string(kQwenXmlBegin) + held_);
    else if (place_ == Place::parameter || place_ == Place::value)
      end_call(out);
    held_.clear();
    place_ = Place::text;
    free_.finish(out);
  }

 private:
  enum class Place { text, function, parameter, value, closing };

  // Extracts the name between `tag` and '>' at the end of the held text.
  static bool named(std::string_view held, std::string_view tag, std::string* name) {
    if (!held.starts_with(tag) || !held.ends_with('>')) return false;
    *name = held.substr(tag.size(), held.size() - tag.size() - 1);
    return true;
  }

  void take(char c, AnswerPieces& out) {
    if (place_ == Place::text) {
      if (free_.push(c, out)) {
        place_ = Place::function;
        held_.clear();
      }
      return;
    }
    if (place_ == Place::value) {
      if (value_.push(c, call_)) end_value(true, out);
      return;
    }
    if (held_.empty() && is_json_space(c)) return;
    held_ += c;
    switch (place_) {
      case Place::text:
      case Place::value: return;
      case Place::function: return take_function(out);
      case Place::parameter: return take_parameter(out);
      case Place::closing: return take_closing(out);
    }
  }

  void take_function(AnswerPieces& out) {
    std::string name;
    if (named(held_, kFunction, &name) && !name.empty()) {
      call_.begin(name, out);
      held_.clear();
      place_ = Place::parameter;
    } else if (!(held_.size() < kLongestToolName && (kFunction.starts_with(held_) || held_.starts_with(kFunction)))) {
      add_piece(out, Kind::text, std::string(kQwenXmlBegin) + held_);
      held_.clear();
      place_ = Place::text;
    }
  }

  void take_parameter(AnswerPieces& out) {
    if (named(held_, kParameter, &key_)) {
      held_.clear();
      value_.begin(key_);
      place_ = Place::value;
    } else if (held_ == kFunctionEnd) {
      end_call(out);
      place_ = Place::closing;
    } else if (!(held_.size() < kLongestToolName &&
                 (held_.starts_with(kParameter) || kParameter.starts_with(held_) || kFunctionEnd.starts_with(held_)))) {
      const std::string held = held_;
      end_call(out);
      place_ = Place::closing;  // models may leave the end of the function out
      for (char c : held) take(c, out);
    }
  }

  void take_closing(AnswerPieces& out) {
    if (kQwenXmlEnd.starts_with(held_)) {
      if (held_.size() == kQwenXmlEnd.size()) place_ = Place::text;
      return;
    }
    place_ = Place::text;
    const std::string held = std::move(held_);
    held_.clear();
    for (char c : held) take(c, out);
  }

  // `closed`: the value has a closing tag.
  void end_value(bool closed, AnswerPieces& out) {
    place_ = Place::parameter;
    if (!closed) return;
    std::string value = value_.value();
    if (value.starts_with('\n')) value.erase(0, 1);
    if (value.ends_with('\n')) value.pop_back();
    call_.add(key_, value, out);
    const std::string behind = value_.behind();
    for (char c : behind) take(c, out);
  }

  void end_call(AnswerPieces& out) {
    call_.end(out);
    held_.clear();
    free_.after_call();
  }

  ParameterCall call_;
  ParameterValue value_{{kParameterEnd, kParameter, ">", {kFunctionEnd, kQwenXmlEnd}}};
  FreeText free_{kQwenXmlBegin};
  std::string held_, key_;
  Place place_ = Place::text;
};

bool speaks_qwen_xml(std::string_view chat_template) {
  return chat_template.find(kQwenXmlBegin) != std::string_view::npos &&
         chat_template.find(kFunction) != std::string_view::npos;
}

std::unique_ptr<CallParser> qwen_xml_parser(std::span<const Tool> tools) {
  return std::make_unique<QwenXmlParser>(tools);
}

Json qwen_xml_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  const ParameterTags form = {kParameter, ">\n", nullptr, "\n", kParameterEnd, {"\n"}, "</function>\n</tool_call>"};
  Json tags = Json::array();
  for (const Tool& tool : tools)
    tags.push_back({{"type", "tag"},
                    {"begin", "<tool_call>\n<function=" + tool.name + ">\n"},
                    {"content", parameters_structure(tool, form)},
                    {"end", ""}});
  return tagged_calls(std::move(tags), kQwenXmlBegin, "\n", wish);
}

constexpr const char* kQwenXmlMarkers[] = {"<tool_call>", "</tool_call>"};

}  // namespace

const ToolDialect kQwenXmlTools = {"qwen_xml",
                                   "parameters as tags: Qwen3-Coder, Qwen 3.5",
                                   speaks_qwen_xml,
                                   qwen_xml_parser,
                                   qwen_xml_structure,
                                   kQwenXmlMarkers,
                                   false,
                                   "<tool_call>"};

}  // namespace millrace
