// Kimi K2: JSON between special tokens, in a section of calls. The id of a call names its function and counts the
// calls of the conversation. Models also write the marks of the section without their "s", or leave them out.
//
//   <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>
//   <|tool_calls_section_end|>
#include <algorithm>

#include "text/tools/dialects.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

constexpr std::string_view kKimiMark = "<|tool_call";  // begins every mark
constexpr std::string_view kKimiBegins[] = {"<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"};
constexpr std::string_view kKimiEnds[] = {"<|tool_calls_section_end|>", "<|tool_call_section_end|>"};
constexpr std::string_view kKimiBegin = kKimiBegins[0], kKimiEnd = kKimiEnds[0], kKimiCall = "<|tool_call_begin|>",
                           kKimiArguments = "<|tool_call_argument_begin|>", kKimiCallEnd = "<|tool_call_end|>",
                           kKimiPrefix = "functions.";

// "functions.f:0" -> "f". Models also leave the prefix or the number out.
std::string kimi_name(std::string_view id) {
  id = without_space(id);
  if (id.starts_with(kKimiPrefix)) id.remove_prefix(kKimiPrefix.size());
  const size_t colon = id.rfind(':');
  const bool counted = colon != std::string_view::npos && colon + 1 < id.size() &&
                       id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return std::string(counted ? id.substr(0, colon) : id);
}

class KimiParser final : public CallParser {
 public:
  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (place_ == Place::in_arguments)
      out.push_back({Kind::call_end, ""});
    else if (place_ != Place::text)
      add_piece(out, Kind::text, seen_);
    place_ = Place::text;
    free_.finish(out);
  }

 private:
  enum class Place { text, between, id, arguments, in_arguments };

  void take(char c, AnswerPieces& out) {
    if (place_ == Place::text) {
      if (!free_.push(c, out)) return;
      seen_ = kKimiMark;
      called_ = false;
      enter(Place::between);
      held_ = kKimiMark;
      return;
    }
    if (place_ == Place::in_arguments) return take_argument(c, out);
    const bool filler = held_.empty() && place_ != Place::id && is_json_space(c);
    if (!filler || !called_) seen_ += c;
    if (filler) return;
    held_ += c;
    if (place_ == Place::between) return take_mark(out);
    if (place_ == Place::id) return take_id(out);
    if (c != '{') return give_up(out);
    out.push_back({Kind::call, name_});
    nesting_ = {};
    enter(Place::in_arguments);
    take_argument(c, out);
  }

  void take_argument(char c, AnswerPieces& out) {
    add_piece(out, Kind::arguments, std::string_view(&c, 1));
    if (!nesting_.push(c)) return;
    out.push_back({Kind::call_end, ""});
    called_ = true;
    free_.after_call();
    enter(Place::between);
  }

  // The start of the section or of a call, or the end of one.
  void take_mark(AnswerPieces& out) {
    const auto is_one_of = [&](const auto& marks) { return std::ranges::find(marks, held_) != std::end(marks); };
    const auto may_become = [&](std::string_view mark) { return held_ != mark && mark.starts_with(held_); };
    if (held_ == kKimiCall) return enter(Place::id);
    if (is_one_of(kKimiBegins) || (held_ == kKimiCallEnd && called_)) return enter(Place::between);
    if (is_one_of(kKimiEnds) && called_) return enter(Place::text);
    if (!may_become(kKimiCall) && !may_become(kKimiCallEnd) && std::ranges::none_of(kKimiBegins, may_become) &&
        std::ranges::none_of(kKimiEnds, may_become))
      give_up(out);
  }

  void take_id(AnswerPieces& out) {
    if (!held_.ends_with(kKimiArguments)) {
      if (held_.size() > kLongestToolName) give_up(out);
      return;
    }
    name_ = kimi_name(std::string_view(held_).substr(0, held_.size() - kKimiArguments.size()));
    if (name_.empty() || name_.find_first_of(" \n\"<") != std::string::npos) return give_up(out);
    enter(Place::arguments);
  }

  // Not a call: what was seen is text.
  void give_up(AnswerPieces& out) {
    const std::string text = seen_;
    enter(Place::text);
    if (!called_) return add_piece(out, Kind::text, text);
    for (char one : text) take(one, out);
  }

  void enter(Place place) {
    held_.clear();
    if (called_ && place == Place::between) seen_.clear();
    place_ = place;
  }

  FreeText free_{kKimiMark};
  std::string seen_;  // text since the first mark; after a call, since its last mark
  std::string held_, name_;
  Place place_ = Place::text;
  JsonNesting nesting_;
  bool called_ = false;
};

bool speaks_kimi(std::string_view chat_template) {
  return chat_template.find(kKimiCall) != std::string_view::npos &&
         chat_template.find(kKimiArguments) != std::string_view::npos;
}

std::unique_ptr<CallParser> kimi_parser(std::span<const Tool>) { return std::make_unique<KimiParser>(); }

Json kimi_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  Json tags = Json::array();
  for (const Tool& tool : tools)
    tags.push_back(
        {{"type", "tag"},
         {"begin", std::string(kKimiCall) + std::string(kKimiPrefix) + tool.name + ":"},
         {"content", sequence_of({Json{{"type", "regex"}, {"pattern", "[0-9]{1,4}"}}, literal_text(kKimiArguments),
                                  Json{{"type", "json_schema"}, {"json_schema", tool.parameters}}})},
         {"end", kKimiCallEnd}});
  Json list = tagged_calls(std::move(tags), "", "", {true, wish.parallel});
  return tagged_calls(
      Json::array({Json{{"type", "tag"}, {"begin", kKimiBegin}, {"content", std::move(list)}, {"end", kKimiEnd}}}),
      kKimiBegin, "", {wish.required, false});
}

constexpr const char* kKimiMarkers[] = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
                                        "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"};

}  // namespace

const ToolDialect kKimiTools = {"kimi",         "ids and JSON between special tokens: Kimi K2",
                                speaks_kimi,    kimi_parser,
                                kimi_structure, kKimiMarkers,
                                false,          "<|tool_calls_section_begin|>"};

}  // namespace millrace
