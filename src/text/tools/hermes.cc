// Nous Research's Hermes format, also used by Qwen 2.5 and 3 and many others:
//
//   text <tool_call>
//   {"name": "f", "arguments": {"a": 1}}
//   </tool_call>
#include <optional>

#include "text/tools/dialects.h"

namespace millrace {
namespace {

constexpr std::string_view kHermesBegin = "<tool_call>", kHermesEnd = "</tool_call>";

class HermesParser final : public CallParser {
 public:
  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (call_) give_up(out);
    for (const char c : closing_.take()) free_.push(c, out);
    free_.finish(out);
  }

 private:
  void take(char c, AnswerPieces& out) {
    if (call_) {
      if (!call_->push(c, out)) return give_up(out);
      if (call_->done()) {
        call_.reset();
        free_.after_call();
        in_closing_ = true;
      }
      return;
    }
    if (in_closing_) {
      if (closing_.push(c)) return;
      in_closing_ = false;
      for (const char one : closing_.take()) take(one, out);
      return;
    }
    if (free_.push(c, out)) call_.emplace();
  }

  void give_up(AnswerPieces& out) {
    if (call_->begun())
      out.push_back({AnswerPiece::Kind::call_end, ""});
    else
      add_piece(out, AnswerPiece::Kind::text, std::string(kHermesBegin) + call_->text());
    call_.reset();
  }

  FreeText free_{kHermesBegin};
  std::optional<JsonCall> call_;
  ClosingTag closing_{kHermesEnd};
  bool in_closing_ = false;
};

// Templates may write the key within quotes of their own: \"arguments\".
bool speaks_hermes(std::string_view chat_template) {
  return chat_template.find(kHermesBegin) != std::string_view::npos &&
         (chat_template.find("\"arguments\"") != std::string_view::npos ||
          chat_template.find("\"arguments\\\"") != std::string_view::npos);
}

std::unique_ptr<CallParser> hermes_parser(std::span<const Tool>) { return std::make_unique<HermesParser>(); }

nlohmann::ordered_json hermes_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  return tagged_calls(call_tags(tools, "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>"),
                      kHermesBegin, "\n", wish);
}

constexpr const char* kHermesMarkers[] = {"<tool_call>", "</tool_call>"};

}  // namespace

const ToolDialect kHermesTools = {"hermes",
                                  "JSON between <tool_call> tags: Hermes, Qwen 2.5 and 3",
                                  speaks_hermes,
                                  hermes_parser,
                                  hermes_structure,
                                  kHermesMarkers,
                                  false,
                                  "<tool_call>"};

}  // namespace millrace
