// Llama 3.1 to 3.3: an answer that begins with a JSON object is a call, optionally after <|python_tag|>; several calls
// are separated by semicolons.
//
//   {"name": "f", "parameters": {"a": 1}}
#include <optional>

#include "text/tools/dialects.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTag = "<|python_tag|>";

class LlamaParser final : public CallParser {
 public:
  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (call_)
      give_up(out);
    else if (!free_ && !called_)
      add_piece(out, AnswerPiece::Kind::text, held_);
    held_.clear();
  }

 private:
  void take(char c, AnswerPieces& out) {
    if (free_) return add_piece(out, AnswerPiece::Kind::text, std::string_view(&c, 1));
    if (call_) {
      if (!call_->push(c, out)) return give_up(out);
      if (call_->done()) {
        call_.reset();
        called_ = true;
        held_.clear();
      }
      return;
    }
    held_ += c;
    const size_t begin = held_.find_first_not_of(" \n\r\t");
    if (called_ && c == ';') held_.clear();
    if (begin == std::string::npos || held_.empty()) return;
    const auto rest = std::string_view(held_).substr(begin);
    if (kTag.starts_with(rest)) {
      if (rest.size() == kTag.size()) held_.clear();
      return;
    }
    if (c == '{' && rest.size() == 1) {
      call_.emplace();
      call_->push(c, out);
      return;
    }
    free_ = true;
    add_piece(out, AnswerPiece::Kind::text, held_);
    held_.clear();
  }

  void give_up(AnswerPieces& out) {
    if (call_->begun())
      out.push_back({AnswerPiece::Kind::call_end, ""});
    else
      add_piece(out, AnswerPiece::Kind::text, held_.substr(0, held_.size() - 1) + call_->text());
    call_.reset();
    held_.clear();
    free_ = true;
  }

  std::optional<JsonCall> call_;
  std::string held_;
  bool free_ = false, called_ = false;
};

bool speaks_llama(std::string_view chat_template) {
  return chat_template.find("\"parameters\": ") != std::string_view::npos &&
         chat_template.find("ipython") != std::string_view::npos;
}

std::unique_ptr<CallParser> llama_parser(std::span<const Tool>) { return std::make_unique<LlamaParser>(); }

Json llama_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  Json calls =
      tagged_calls(call_tags(tools, "{\"name\": \"", "\", \"parameters\": ", "}"), "", "; ", {true, wish.parallel});
  if (wish.required) return calls;
  const Json tagged = {{"type", "sequence"}, {"elements", {Json{{"type", "const_string"}, {"value", kTag}}, calls}}};
  const Json text = {{"type", "regex"}, {"pattern", "\\s*(([^\\s{<]|<([^|]|\\|[^p]))[\\s\\S]*)?"}};
  return {{"type", "or"}, {"elements", {text, tagged, std::move(calls)}}};
}

constexpr const char* kLlamaMarkers[] = {"<|python_tag|>"};

}  // namespace

const ToolDialect kLlamaTools = {"llama",         "a JSON object with name and parameters: Llama 3",
                                 speaks_llama,    llama_parser,
                                 llama_structure, kLlamaMarkers,
                                 false,           "<|python_tag|>"};

}  // namespace millrace
