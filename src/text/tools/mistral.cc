// Mistral: a list of JSON objects; newer models (Small 3.2, Devstral, Ministral 3) write only the name and the
// arguments:
//
//   text[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}, "id": "..."}]
//   text[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]...[ARGS]{}
#include <optional>

#include "text/tools/dialects.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

constexpr std::string_view kMistralBegin = "[TOOL_CALLS]", kArgs = "[ARGS]", kCallId = "[CALL_ID]";

// Accepts both forms, whichever one the template uses.
class MistralParser final : public CallParser {
 public:
  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (place_ == Place::in_list && call_)
      give_up(out);
    else if (place_ == Place::name)
      add_piece(out, Kind::text, std::string(kMistralBegin) + held_);
    else if (place_ == Place::arguments)
      out.push_back({Kind::call_end, ""});
    held_.clear();
    place_ = Place::text;
    free_.finish(out);
  }

 private:
  enum class Place { text, name, in_list, arguments };

  void take(char c, AnswerPieces& out) {
    switch (place_) {
      case Place::text:
        if (!free_.push(c, out)) return;
        place_ = Place::name;
        held_.clear();
        return;
      case Place::name: return take_name(c, out);
      case Place::in_list: return take_listed(c, out);
      case Place::arguments: return take_argument(c, out);
    }
  }

  void take_name(char c, AnswerPieces& out) {
    if (held_.empty() && is_json_space(c)) return;
    if (held_.empty() && c == '[') {
      place_ = Place::in_list;
      return;
    }
    held_ += c;
    if (c != '{' && held_.size() < kLongestToolName) return;
    std::string name = held_.substr(0, held_.size() - 1);
    if (const size_t at = name.find(kArgs); at != std::string::npos) name.resize(at);
    if (const size_t at = name.find(kCallId); at != std::string::npos) name.resize(at);
    while (!name.empty() && is_json_space(name.back())) name.pop_back();
    if (c != '{' || name.empty() || name.find_first_of(" \n\"") != std::string::npos) {
      add_piece(out, Kind::text, std::string(kMistralBegin) + held_);
      place_ = Place::text;
      return;
    }
    out.push_back({Kind::call, name});
    place_ = Place::arguments;
    nesting_ = {};
    take_argument(c, out);
  }

  void take_argument(char c, AnswerPieces& out) {
    add_piece(out, Kind::arguments, std::string_view(&c, 1));
    if (!nesting_.push(c)) return;
    out.push_back({Kind::call_end, ""});
    place_ = Place::text;
    free_.after_call();
  }

  void take_listed(char c, AnswerPieces& out) {
    if (call_) {
      if (!call_->push(c, out)) return give_up(out);
      if (call_->done()) {
        call_.reset();
        free_.after_call();
      }
      return;
    }
    if (is_json_space(c) || c == ',') return;
    if (c == ']') {
      place_ = Place::text;
      return;
    }
    call_.emplace();
    if (!call_->push(c, out)) give_up(out);
  }

  void give_up(AnswerPieces& out) {
    if (call_->begun())
      out.push_back({Kind::call_end, ""});
    else
      add_piece(out, Kind::text, std::string(kMistralBegin) + "[" + call_->text());
    call_.reset();
    place_ = Place::text;
  }

  FreeText free_{kMistralBegin};
  std::optional<JsonCall> call_;
  std::string held_;
  Place place_ = Place::text;
  JsonNesting nesting_;
};

bool speaks_mistral(std::string_view chat_template) {
  return chat_template.find(kMistralBegin) != std::string_view::npos;
}
bool speaks_args(std::string_view chat_template) {
  return speaks_mistral(chat_template) && chat_template.find(kArgs) != std::string_view::npos;
}

std::unique_ptr<CallParser> mistral_parser(std::span<const Tool>) { return std::make_unique<MistralParser>(); }

Json mistral_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  Json items =
      tagged_calls(call_tags(tools, "{\"name\": \"", "\", \"arguments\": ", "}"), "", ", ", {true, wish.parallel});
  Json list = {{"type", "sequence"},
               {"elements",
                {Json{{"type", "regex"}, {"pattern", " ?\\["}}, std::move(items),
                 Json{{"type", "const_string"}, {"value", "]"}}}}};
  return tagged_calls(
      Json::array({Json{{"type", "tag"}, {"begin", kMistralBegin}, {"content", std::move(list)}, {"end", ""}}}),
      kMistralBegin, "", {wish.required, false});
}

Json structure_args(std::span<const Tool> tools, const ToolChoice& wish) {
  return tagged_calls(call_tags(tools, kMistralBegin, kArgs, ""), kMistralBegin, "", wish);
}

constexpr const char* kMistralMarkers[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};

}  // namespace

const ToolDialect kMistralTools = {"mistral",
                                   "a list of JSON objects after [TOOL_CALLS]: Mistral 7B v0.3 to Nemo",
                                   speaks_mistral,
                                   mistral_parser,
                                   mistral_structure,
                                   kMistralMarkers,
                                   true,
                                   "[TOOL_CALLS]"};
const ToolDialect kMistralArgsTools = {"mistral_args", "[TOOL_CALLS]name[ARGS]{...}: newer Mistral models",
                                       speaks_args,    mistral_parser,
                                       structure_args, kMistralMarkers,
                                       true,           "[TOOL_CALLS]"};

}  // namespace millrace
