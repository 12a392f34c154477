// A list of JSON objects behind a marker:
//
//   <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]                       Granite 3
//   <TOOLCALL>[{"name": "f", "arguments": {"a": 1}}]</TOOLCALL>               Nemotron Nano v2
#include <optional>

#include "text/tools/dialects.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

constexpr std::string_view kGraniteBegin = "<|tool_call|>", kNemotronBegin = "<TOOLCALL>", kNemotronEnd = "</TOOLCALL>";

class JsonListParser final : public CallParser {
 public:
  // `end`: a tag behind the list, which models may leave out; "": there is none.
  JsonListParser(std::string_view begin, std::string_view end)
      : begin_(begin), end_(end), free_(begin), closing_(end) {}

  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (call_)
      give_up(out);
    else if (place_ == Place::open || (place_ == Place::list && !called_))
      add_piece(out, Kind::text, seen_);
    for (const char c : closing_.take()) free_.push(c, out);
    place_ = Place::text;
    free_.finish(out);
  }

 private:
  enum class Place { text, open, list, closing };

  void take(char c, AnswerPieces& out) {
    if (place_ == Place::text) {
      if (!free_.push(c, out)) return;
      seen_ = begin_;
      called_ = false;
      place_ = Place::open;
      return;
    }
    if (place_ == Place::closing) return take_closing(c, out);
    if (call_) return take_call(c, out);
    seen_ += c;
    if (is_json_space(c) || (c == ',' && called_)) return;
    if (place_ == Place::open) {
      if (c != '[') return no_call(out);
      place_ = Place::list;
    } else if (c == ']' && called_) {
      place_ = end_.empty() ? Place::text : Place::closing;
    } else if (c == '{') {
      call_.emplace();
      call_->push(c, out);
    } else {
      no_call(out);
    }
  }

  void take_call(char c, AnswerPieces& out) {
    if (!call_->push(c, out)) return give_up(out);
    if (!call_->done()) return;
    seen_ += call_->text().substr(1);
    call_.reset();
    called_ = true;
    free_.after_call();
  }

  void take_closing(char c, AnswerPieces& out) {
    if (closing_.push(c)) return;
    place_ = Place::text;
    for (const char one : closing_.take()) take(one, out);
  }

  void give_up(AnswerPieces& out) {
    if (call_->begun())
      out.push_back({Kind::call_end, ""});
    else
      add_piece(out, Kind::text, called_ ? call_->text() : seen_ + call_->text().substr(1));
    call_.reset();
    place_ = Place::text;
  }

  void no_call(AnswerPieces& out) {
    add_piece(out, Kind::text, called_ ? seen_.substr(seen_.size() - 1) : seen_);
    place_ = Place::text;
  }

  const std::string_view begin_, end_;
  FreeText free_;
  ClosingTag closing_;
  std::optional<JsonCall> call_;
  std::string seen_;  // everything since the marker
  Place place_ = Place::text;
  bool called_ = false;
};

bool speaks_granite(std::string_view chat_template) {
  return chat_template.find(kGraniteBegin) != std::string_view::npos &&
         chat_template.find("JSON list") != std::string_view::npos;
}
bool speaks_nemotron(std::string_view chat_template) {
  return chat_template.find(kNemotronBegin) != std::string_view::npos;
}

std::unique_ptr<CallParser> granite_parser(std::span<const Tool>) {
  return std::make_unique<JsonListParser>(kGraniteBegin, "");
}
std::unique_ptr<CallParser> nemotron_parser(std::span<const Tool>) {
  return std::make_unique<JsonListParser>(kNemotronBegin, kNemotronEnd);
}

Json json_list_structure(std::span<const Tool> tools, const ToolChoice& wish, std::string_view begin,
                         std::string_view end) {
  Json items =
      tagged_calls(call_tags(tools, "{\"name\": \"", "\", \"arguments\": ", "}"), "", ", ", {true, wish.parallel});
  Json tag = {{"type", "tag"},
              {"begin", std::string(begin) + "["},
              {"content", std::move(items)},
              {"end", "]" + std::string(end)}};
  return tagged_calls(Json::array({std::move(tag)}), begin, "", {wish.required, false});
}
Json granite_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  return json_list_structure(tools, wish, kGraniteBegin, "");
}
Json nemotron_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  return json_list_structure(tools, wish, kNemotronBegin, kNemotronEnd);
}

std::string write_granite_calls(const Json& calls) {
  return std::string(kGraniteBegin) + calls.dump(-1, ' ', false, Json::error_handler_t::replace);
}

constexpr const char* kGraniteMarkers[] = {"<|tool_call|>"};
constexpr const char* kNemotronMarkers[] = {"<TOOLCALL>", "</TOOLCALL>"};

}  // namespace

const ToolDialect kGraniteTools = {"granite_list",
                                   "a list of JSON objects behind <|tool_call|>: Granite 3",
                                   speaks_granite,
                                   granite_parser,
                                   granite_structure,
                                   kGraniteMarkers,
                                   false,
                                   "<|tool_call|>",
                                   nullptr,
                                   nullptr,
                                   write_granite_calls};
const ToolDialect kNemotronTools = {"nemotron_list",
                                    "a list of JSON objects between <TOOLCALL> tags: Nemotron Nano v2",
                                    speaks_nemotron,
                                    nemotron_parser,
                                    nemotron_structure,
                                    kNemotronMarkers,
                                    false,
                                    "<TOOLCALL>"};

}  // namespace millrace
