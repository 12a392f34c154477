// Harmony, the format of gpt-oss: an answer consists of one or more messages, each with a header that names its
// channel. Reasoning is in `analysis`, text for the user in `final`, and a call is a message to a tool.
//
//   <|channel|>analysis<|message|>thinking<|end|><|start|>assistant<|channel|>final<|message|>text<|return|>
//   <|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
//    to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>
//
// The model ends its turn with the first call. Text without a header is plain text.
#include "text/tools/dialects.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

constexpr std::string_view kChannel = "<|channel|>", kMessage = "<|message|>", kStart = "<|start|>",
                           kHarmonyEnd = "<|end|>", kHarmonyCall = "<|call|>", kReturn = "<|return|>";
constexpr std::string_view kTo = "to=", kFunctions = "functions.", kRole = "assistant";
constexpr size_t kMaxHeader = 1024;

// The word after `mark`; "" if there is none.
std::string word_behind(std::string_view header, std::string_view mark) {
  const size_t at = header.find(mark);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = header.substr(at + mark.size());
  return std::string(rest.substr(0, rest.find_first_of(" \n\r\t<")));
}

class MessageParser final : public CallParser {
 public:
  explicit MessageParser(bool calls) : calls_(calls) {}

  void push(std::string_view text, AnswerPieces& out) override {
    for (char c : text) take(c, out);
  }

  void finish(AnswerPieces& out) override {
    if (place_ == Place::body)
      add_piece(out, kind_, held_);
    else if (!ended_)
      add_piece(out, Kind::text, held_);  // an incomplete header after a message is dropped
    end_message(out);
  }

 private:
  enum class Place { header, body, plain };

  void take(char c, AnswerPieces& out) {
    if (place_ == Place::plain) return add_piece(out, Kind::text, std::string_view(&c, 1));
    held_ += c;
    if (place_ == Place::body) return take_body(out);
    if (held_.ends_with(kMessage)) return begin_message();
    if (held_.size() <= kMaxHeader && may_be_header()) return;
    place_ = Place::plain;
    add_piece(out, Kind::text, held_);
    held_.clear();
  }

  // Optionally "<|start|>assistant", then the recipient or the channel.
  bool may_be_header() const {
    std::string_view held = held_;
    for (std::string_view mark : {kStart, kRole}) {
      if (mark.starts_with(held)) return true;
      if (held.starts_with(mark)) held.remove_prefix(mark.size());
    }
    while (!held.empty() && is_json_space(held.front())) held.remove_prefix(1);
    for (std::string_view mark : {kChannel, kTo})
      if (mark.starts_with(held) || held.starts_with(mark)) return true;
    return false;
  }

  void begin_message() {
    const std::string_view header = std::string_view(held_).substr(0, held_.size() - kMessage.size());
    std::string to = word_behind(header, kTo);
    if (to.starts_with(kFunctions)) to.erase(0, kFunctions.size());
    const std::string channel = word_behind(header, kChannel);
    call_ = calls_ ? to : "";
    kind_ = !call_.empty() ? Kind::arguments : channel == "analysis" ? Kind::reasoning : Kind::text;
    begun_ = false;
    ended_ = true;
    held_.clear();
    place_ = Place::body;
  }

  void take_body(AnswerPieces& out) {
    const auto is_mark = [&](auto matches) {
      for (std::string_view mark : {kHarmonyEnd, kHarmonyCall, kReturn, kStart})
        if (matches(mark)) return true;
      return false;
    };
    if (is_mark([&](std::string_view mark) { return mark == held_; })) {
      const bool starts = held_ == kStart;
      end_message(out);
      held_ = starts ? kStart : "";
      return;
    }
    while (!held_.empty() && !is_mark([&](std::string_view mark) { return mark.starts_with(held_); })) {
      begin_call(out);
      add_piece(out, kind_, std::string_view(held_).substr(0, 1));
      held_.erase(0, 1);
    }
  }

  void begin_call(AnswerPieces& out) {
    if (kind_ == Kind::arguments && !begun_) out.push_back({Kind::call, call_});
    begun_ = true;
  }

  void end_message(AnswerPieces& out) {
    if (place_ == Place::body && kind_ == Kind::arguments) {
      if (!begun_) {
        begin_call(out);
        add_piece(out, Kind::arguments, "{}");
      }
      out.push_back({Kind::call_end, ""});
    }
    held_.clear();
    place_ = Place::header;
  }

  const bool calls_;
  Place place_ = Place::header;
  Kind kind_ = Kind::text;
  std::string held_, call_;
  bool begun_ = false;  // part of the message was emitted
  bool ended_ = false;  // a message precedes this header
};

bool speaks_harmony(std::string_view chat_template) {
  return chat_template.find(kChannel) != std::string_view::npos &&
         chat_template.find("analysis") != std::string_view::npos &&
         chat_template.find(kHarmonyCall) != std::string_view::npos;
}

std::unique_ptr<CallParser> harmony_parser(std::span<const Tool> tools) {
  return std::make_unique<MessageParser>(!tools.empty());
}

// A message without a recipient, and the beginning of the next one. Its text has no other mark, which would end it
// early for the parser.
Json message_before(std::string_view channel) {
  return sequence_of({literal_text(std::string(kChannel) + std::string(channel) + std::string(kMessage)),
                      Json{{"type", "regex"}, {"pattern", R"(([^<]|<+[^<|])*<*<\|end\|>)"}},
                      literal_text(std::string(kStart) + std::string(kRole))});
}

Json optional_part(Json content) { return {{"type", "optional"}, {"content", std::move(content)}}; }

Json one_of(Json ways) {
  return ways.size() == 1 ? std::move(ways[0]) : Json{{"type", "or"}, {"elements", std::move(ways)}};
}

Json harmony_calls(std::span<const Tool> tools) {
  Json ways = Json::array();
  for (const Tool& tool : tools) {
    const Json arguments = {{"type", "json_schema"}, {"json_schema", tool.parameters}};
    ways.push_back(sequence_of({literal_text(std::string(kChannel) + "commentary to=functions." + tool.name +
                                             " <|constrain|>json" + std::string(kMessage)),
                                arguments}));
    ways.push_back(sequence_of(
        {literal_text(" to=functions." + tool.name + std::string(kChannel) + "commentary json" + std::string(kMessage)),
         arguments}));
  }
  return ways;
}

// Reasoning may precede everything; the messages are distinguished by their headers. Commentary, which is shown as
// text, may precede a call or free text, not text that a client parses.
Json harmony_frames(std::span<const Tool> tools, const ToolChoice& wish, const Json& text) {
  Json ways = harmony_calls(tools);
  const Json thought = optional_part(message_before("analysis")), said = optional_part(message_before("commentary"));
  if (text.is_null()) {
    if (wish.required) return sequence_of({thought, one_of(std::move(ways))});
    return sequence_of({thought, said, one_of(std::move(ways))});
  }
  Json last = sequence_of({literal_text(std::string(kChannel) + "final" + std::string(kMessage)), text});
  if (text.value("type", "") == "any_text") {
    ways.push_back(std::move(last));
    return sequence_of({thought, said, one_of(std::move(ways))});
  }
  if (ways.empty()) return sequence_of({thought, std::move(last)});
  return sequence_of({thought, one_of({std::move(last), sequence_of({said, one_of(std::move(ways))})})});
}

Json harmony_structure(std::span<const Tool> tools, const ToolChoice& wish) {
  return harmony_frames(tools, wish, wish.required ? Json() : Json{{"type", "any_text"}});
}

constexpr const char* kHarmonyMarkers[] = {"<|channel|>", "<|message|>", "<|constrain|>", "<|start|>",
                                           "<|end|>",     "<|call|>",    "<|return|>"};

}  // namespace

const ToolDialect kHarmonyTools = {"harmony",
                                   "messages in channels: gpt-oss",
                                   speaks_harmony,
                                   harmony_parser,
                                   harmony_structure,
                                   kHarmonyMarkers,
                                   false,
                                   "",
                                   nullptr,
                                   harmony_frames};

}  // namespace millrace
