// MiniMax M2: parameters as tags, strings verbatim, everything else as JSON; one block holds all calls.
//
//   <minimax:tool_call>
//   <invoke name="f">
//   <parameter name="key">value</parameter>
//   </invoke>
//   </minimax:tool_call>
#include "text/tools/dialects.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

constexpr std::string_view kMinimaxBegin = "<minimax:tool_call>", kMinimaxEnd = "</minimax:tool_call>",
                           kInvoke = "<invoke name=\"", kInvokeEnd = "</invoke>",
                           kMinimaxParameter = "<parameter name=\"", kMinimaxParameterEnd = "</parameter>",
                           kNameEnd = "\">";

class MinimaxParser final : public CallParser {
 public:
  explicit MinimaxParser(std::span<const Tool> tools) : call_(tools) {}

  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (place_ == Place::value) end_value(value_.finish(), out);
    if (place_ == Place::between) add_piece(out, Kind::text, called_ ? held_ : seen_);
    if (place_ == Place::parameter || place_ == Place::value) call_.end(out);
    held_.clear();
    place_ = Place::text;
    free_.finish(out);
  }

 private:
  enum class Place { text, between, parameter, value };

  // Extracts the name between `tag` and `">` at the end of the held text.
  bool named(std::string_view tag, std::string* name) const {
    const std::string_view held = held_;
    if (!held.starts_with(tag) || !held.ends_with(kNameEnd)) return false;
    *name = held.substr(tag.size(), held.size() - tag.size() - kNameEnd.size());
    return !name->empty();
  }
  // Returns true if the held text may become `tag` with a name.
  bool may_be(std::string_view tag) const {
    return held_.size() < kLongestToolName && (tag.starts_with(held_) || std::string_view(held_).starts_with(tag));
  }

  void take(char c, AnswerPieces& out) {
    if (place_ == Place::text) {
      if (!free_.push(c, out)) return;
      seen_ = kMinimaxBegin;
      called_ = false;
      return enter(Place::between);
    }
    if (place_ == Place::value) {
      if (value_.push(c, call_)) end_value(true, out);
      return;
    }
    if (!called_) seen_ += c;
    if (held_.empty() && is_json_space(c)) return;
    held_ += c;
    place_ == Place::between ? take_invoke(out) : take_parameter(out);
  }

  void take_invoke(AnswerPieces& out) {
    std::string name;
    if (named(kInvoke, &name)) {
      call_.begin(name, out);
      enter(Place::parameter);
    } else if (held_ == kMinimaxEnd && called_) {
      enter(Place::text);
    } else if (!may_be(kInvoke) && !(kMinimaxEnd.starts_with(held_) && held_ != kMinimaxEnd)) {
      const std::string text = called_ ? held_ : seen_;
      enter(Place::text);
      if (!called_) return add_piece(out, Kind::text, text);
      for (char one : text) take(one, out);
    }
  }

  void take_parameter(AnswerPieces& out) {
    if (named(kMinimaxParameter, &key_)) {
      value_.begin(key_);
      enter(Place::value);
    } else if (held_ == kInvokeEnd) {
      end_call(out);
    } else if (!may_be(kMinimaxParameter) && !kInvokeEnd.starts_with(held_)) {
      const std::string held = held_;
      end_call(out);  // models may leave the end of the call out
      for (char c : held) take(c, out);
    }
  }

  // `closed`: the value has a closing tag.
  void end_value(bool closed, AnswerPieces& out) {
    enter(Place::parameter);
    if (!closed) return;
    call_.add(key_, value_.value(), out);
    const std::string behind = value_.behind();
    for (char c : behind) take(c, out);
  }

  void end_call(AnswerPieces& out) {
    call_.end(out);
    called_ = true;
    free_.after_call();
    enter(Place::between);
  }

  void enter(Place place) {
    held_.clear();
    place_ = place;
  }

  ParameterCall call_;
  ParameterValue value_{{kMinimaxParameterEnd, kMinimaxParameter, kNameEnd, {kInvokeEnd, ""}}};
  FreeText free_{kMinimaxBegin};
  std::string seen_;  // text since the start of the block, until the first call is complete
  std::string held_, key_;
  Place place_ = Place::text;
  bool called_ = false;
};

bool speaks_minimax(std::string_view chat_template) {
  return chat_template.find(kMinimaxBegin) != std::string_view::npos &&
         chat_template.find(kInvoke) != std::string_view::npos;
}

std::unique_ptr<CallParser> minimax_parser(std::span<const Tool> tools) {
  return std::make_unique<MinimaxParser>(tools);
}

Json minimax_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  const ParameterTags form = {kMinimaxParameter, kNameEnd, nullptr, "", kMinimaxParameterEnd, {"\n", ""}, kInvokeEnd};
  Json tags = Json::array();
  for (const Tool& tool : tools)
    tags.push_back(
        {{"type", "tag"},
         {"begin", std::string(kInvoke) + tool.name + std::string(kNameEnd)},
         {"content", sequence_of({Json{{"type", "regex"}, {"pattern", "\\n?"}}, parameters_structure(tool, form)})},
         {"end", ""}});
  Json list = tagged_calls(std::move(tags), "", "\n", {true, wish.parallel});
  return tagged_calls(Json::array({Json{{"type", "tag"},
                                        {"begin", std::string(kMinimaxBegin) + "\n"},
                                        {"content", std::move(list)},
                                        {"end", "\n" + std::string(kMinimaxEnd)}}}),
                      kMinimaxBegin, "", {wish.required, false});
}

constexpr const char* kMinimaxMarkers[] = {"<minimax:tool_call>", "</minimax:tool_call>"};

}  // namespace

const ToolDialect kMinimaxTools = {"minimax",
                                   "calls and parameters as tags in one block: MiniMax M2",
                                   speaks_minimax,
                                   minimax_parser,
                                   minimax_structure,
                                   kMinimaxMarkers,
                                   false,
                                   "<minimax:tool_call>"};

}  // namespace millrace
