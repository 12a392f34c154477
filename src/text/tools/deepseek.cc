// DeepSeek: calls between special tokens. V3 and R1 add a type and a code fence around the arguments; V3.1 and later do
// not.
//
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
//   ```json
//   {"a": 1}
//   ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
#include "text/tools/dialects.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

constexpr std::string_view kDeepseekBegin = "<｜tool▁calls▁begin｜>", kDeepseekEnd = "<｜tool▁calls▁end｜>",
                           kCall = "<｜tool▁call▁begin｜>", kCallEnd = "<｜tool▁call▁end｜>", kSep = "<｜tool▁sep｜>";

bool is_filler(char c) { return is_json_space(c) || c == '`'; }

// Accepts both forms, whichever one the template uses.
class MarkedParser final : public CallParser {
 public:
  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (place_ == Place::arguments)
      out.push_back({Kind::call_end, ""});
    else if (place_ != Place::text && !called_)
      add_piece(out, Kind::text, seen_);
    place_ = Place::text;
    free_.finish(out);
  }

 private:
  enum class Place { text, between, kind, name, arguments };

  void take(char c, AnswerPieces& out) {
    if (place_ == Place::text) {
      if (!free_.push(c, out)) return;
      seen_ = kDeepseekBegin;
      called_ = false;
      enter(Place::between);
      return;
    }
    if (place_ == Place::arguments) {
      add_piece(out, Kind::arguments, std::string_view(&c, 1));
      if (!nesting_.push(c)) return;
      out.push_back({Kind::call_end, ""});
      called_ = true;
      free_.after_call();
      return enter(Place::between);
    }
    seen_ += c;
    if (place_ == Place::between && held_.empty() && is_filler(c)) return;
    held_ += c;
    if (place_ == Place::between) return take_mark(out);
    if (place_ == Place::kind) {
      if (held_.ends_with(kSep)) {
        kind_ = without_space(std::string_view(held_).substr(0, held_.size() - kSep.size()));
        enter(Place::name);
      } else if (held_.size() > kLongestToolName) {
        give_up(out);
      }
      return;
    }
    take_name(c, out);
  }

  // The start of a call, the end of one, or the end of all.
  void take_mark(AnswerPieces& out) {
    if (held_ == kCall)
      enter(Place::kind);
    else if (held_ == kCallEnd)
      enter(Place::between);
    else if (held_ == kDeepseekEnd && called_)
      enter(Place::text);
    else if (!kCall.starts_with(held_) && !kCallEnd.starts_with(held_) && !kDeepseekEnd.starts_with(held_))
      give_up(out);
    else if (held_ == kDeepseekEnd)
      give_up(out);
  }

  // The text between the marker and the arguments: nothing, or the name and a fence.
  void take_name(char c, AnswerPieces& out) {
    if (c != '{' && held_.size() < kLongestToolName) return;
    std::string_view before = std::string_view(held_).substr(0, held_.size() - 1);
    const std::string line(without_space(before.substr(0, before.find("```"))));
    const std::string name = line.empty() ? kind_ : line;
    if (c != '{' || name.empty() || name.find_first_of(" \n\"<") != std::string::npos) return give_up(out);
    out.push_back({Kind::call, name});
    nesting_ = {};
    nesting_.push(c);
    enter(Place::arguments);
    add_piece(out, Kind::arguments, "{");
  }

  // Not a call: the text since the last complete call is returned as text.
  void give_up(AnswerPieces& out) {
    const std::string text = called_ ? held_ : seen_;
    enter(Place::text);
    if (!called_) return add_piece(out, Kind::text, text);
    for (char one : text) take(one, out);
  }

  void enter(Place place) {
    held_.clear();
    place_ = place;
  }

  FreeText free_{kDeepseekBegin};
  std::string seen_;  // text since the start of the calls, until the first one is complete
  std::string held_, kind_;
  Place place_ = Place::text;
  JsonNesting nesting_;
  bool called_ = false;
};

bool speaks_named(std::string_view chat_template) { return chat_template.find(kCall) != std::string_view::npos; }
bool speaks_deepseek(std::string_view chat_template) {
  return speaks_named(chat_template) && chat_template.find("```json") != std::string_view::npos;
}

std::unique_ptr<CallParser> deepseek_parser(std::span<const Tool>) { return std::make_unique<MarkedParser>(); }

Json calls(std::span<const Tool> tools, const ToolChoice& wish, const std::string& before, std::string_view between,
           std::string_view behind, std::string_view separator) {
  Json list = tagged_calls(call_tags(tools, before, between, behind), "", separator, {true, wish.parallel});
  return tagged_calls(
      Json::array(
          {Json{{"type", "tag"}, {"begin", kDeepseekBegin}, {"content", std::move(list)}, {"end", kDeepseekEnd}}}),
      kDeepseekBegin, "", {wish.required, false});
}

Json deepseek_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  return calls(tools, wish, std::string(kCall) + "function" + std::string(kSep), "\n```json\n",
               "\n```" + std::string(kCallEnd), "\n");
}

Json structure_named(std::span<const Tool> tools, const ToolChoice& wish) {
  return calls(tools, wish, std::string(kCall), kSep, kCallEnd, "");
}

constexpr const char* kDeepseekMarkers[] = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
                                            "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"};

// V3.1's template does not render tools; this is the description that DeepSeek documents for the system prompt.
std::string describe_deepseek_tools(std::span<const Tool> tools) {
  std::string out = "## Tools\nYou have access to the following tools:\n";
  for (const Tool& tool : tools)
    out += "\n### " + tool.name + "\nDescription: " + tool.description +
           "\n\nParameters: " + tool.parameters.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  out += "\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n";
  for (std::string_view part :
       {kDeepseekBegin, kCall, std::string_view("tool_call_name"), kSep, std::string_view("tool_call_arguments"),
        kCallEnd, std::string_view("{additional_tool_calls}"), kDeepseekEnd})
    out += part;
  return out + "\n\nThe name must be one of the tools above, and the arguments JSON that follows its parameters.\n";
}

}  // namespace

const ToolDialect kDeepseekTools = {"deepseek",
                                    "JSON in a fence between special tokens: DeepSeek V3 and R1",
                                    speaks_deepseek,
                                    deepseek_parser,
                                    deepseek_structure,
                                    kDeepseekMarkers,
                                    false,
                                    "<｜tool▁calls▁begin｜>"};
const ToolDialect kDeepseekNamedTools = {"deepseek_named",
                                         "names and JSON between special tokens: DeepSeek V3.1",
                                         speaks_named,
                                         deepseek_parser,
                                         structure_named,
                                         kDeepseekMarkers,
                                         false,
                                         "<｜tool▁calls▁begin｜>",
                                         describe_deepseek_tools};

}  // namespace millrace
