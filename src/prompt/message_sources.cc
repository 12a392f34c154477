// The parts are found by rendering the conversation a second time with a marker in place of each message:
//
//   rendered  <|user|> MARKER0 <|end|> <|assistant|>          the text around the markers is the template's
//   text      <|user|> Who was Ada? <|end|> <|assistant|>     it is verified in the text, with the messages in between
#include "prompt/message_sources.h"

#include <fmt/format.h>

#include <optional>

#include "prompt/chat_prompt.h"
#include "prompt/token_ends.h"
#include "run/language_model.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMarker = "MillracePromptPart";

struct MessageText {
  size_t begin = 0, end = 0;  // bytes
  PromptSource source = PromptSource::fixed;
};

struct MarkedMessage {
  std::string content;
  PromptSource source;
};

bool is_of_role(const Json& message, std::string_view role) {
  const auto found = message.find("role");
  return found != message.end() && *found == role;
}

// The source of a message's text; fixed: no compressor may change it.
PromptSource source_of(const Json& message, bool last_of_user) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_string()) return PromptSource::fixed;
  if (is_of_role(message, "tool")) return PromptSource::tool;
  if (is_of_role(message, "user")) return last_of_user ? PromptSource::text : PromptSource::turn;
  const bool calls = message.contains("tool_calls") && !message["tool_calls"].empty();
  return is_of_role(message, "assistant") && !calls ? PromptSource::answer : PromptSource::fixed;
}

std::string without_blanks(const std::string& text) {
  constexpr const char* kBlank = " \t\r\n\f\v";
  const size_t first = text.find_first_not_of(kBlank);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
}

// The end of `content` in `text` at `at`, if `next` follows it; templates often trim it.
std::optional<size_t> content_end(const std::string& text, size_t at, const std::string& content,
                                  const std::string& next, bool last) {
  for (const std::string& one : {content, without_blanks(content)}) {
    const size_t end = at + one.size();
    if (text.compare(at, one.size(), one) != 0 || text.compare(end, next.size(), next) != 0) continue;
    if (!last || end + next.size() == text.size()) return end;
  }
  return std::nullopt;
}

// Splits `rendered` at the markers: the text before the first, between them, and after the last, with their numbers.
bool split_at_markers(const std::string& rendered, std::vector<std::string>& around, std::vector<size_t>& numbers) {
  size_t at = 0;
  for (size_t found; (found = rendered.find(kMarker, at)) != std::string::npos;) {
    around.push_back(rendered.substr(at, found - at));
    const size_t digits = found + std::string_view(kMarker).size(), end = rendered.find('.', digits);
    if (end == std::string::npos || end == digits || end - digits > 9) return false;
    size_t number = 0;
    for (size_t i = digits; i < end; ++i) {
      if (rendered[i] < '0' || rendered[i] > '9') return false;
      number = number * 10 + static_cast<size_t>(rendered[i] - '0');
    }
    numbers.push_back(number);
    at = end + 1;
  }
  around.push_back(rendered.substr(at));
  return true;
}

// Puts markers in place of the messages' contents, and returns these. `answers`: also of the model's own answers, which
// some templates change.
std::vector<MarkedMessage> mark_messages(Json& messages, bool answers) {
  std::vector<MarkedMessage> out;
  size_t last = messages.size();
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].is_object() && is_of_role(messages[i], "user")) last = i;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) continue;
    const PromptSource source = source_of(messages[i], i == last);
    if (source == PromptSource::fixed || (source == PromptSource::answer && !answers)) continue;
    out.push_back({messages[i]["content"].get<std::string>(), source});
    messages[i]["content"] = fmt::format("{}{}.", kMarker, out.size() - 1);
  }
  return out;
}

// The messages' ranges in `text`; none if they are not found in order.
std::vector<MessageText> find_messages(const LanguageModel& model, const Json& input, bool add_generation_prompt,
                                       const std::string& text, bool answers) {
  if (text.find(kMarker) != std::string::npos) return {};
  Json marked = input;
  const std::vector<MarkedMessage> messages = mark_messages(marked["messages"], answers);
  if (messages.empty()) return {};
  const auto rendered = chat_text(model, marked, add_generation_prompt);
  std::vector<std::string> around;
  std::vector<size_t> numbers;
  if (!rendered.ok() || !split_at_markers(*rendered, around, numbers) || text.compare(0, around[0].size(), around[0]))
    return {};
  std::vector<MessageText> out;
  size_t at = around[0].size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] >= messages.size()) return {};
    const MarkedMessage& message = messages[numbers[i]];
    const auto end = content_end(text, at, message.content, around[i + 1], i + 1 == numbers.size());
    if (!end) return {};
    out.push_back({at, *end, message.source});
    at = *end + around[i + 1].size();
  }
  return out;
}

}  // namespace

std::vector<PromptSource> message_sources(const LanguageModel& model, const Json& input, bool add_generation_prompt,
                                          const std::string& text, const std::vector<TokenId>& tokens) {
  std::vector<PromptSource> out(tokens.size(), PromptSource::fixed);
  const Tokenizer* tokenizer = model.parts().tokenizer.get();
  const auto ends = tokenizer ? token_ends(*tokenizer, tokens, text) : std::nullopt;
  if (!ends) return out;
  std::vector<MessageText> parts = find_messages(model, input, add_generation_prompt, text, true);
  if (parts.empty()) parts = find_messages(model, input, add_generation_prompt, text, false);
  size_t part = 0;
  for (size_t i = 0, begin = 0; i < tokens.size(); begin = (*ends)[i++]) {
    while (part < parts.size() && parts[part].end <= begin) ++part;
    if (part == parts.size()) break;
    if ((*ends)[i] > begin && begin >= parts[part].begin && (*ends)[i] <= parts[part].end) out[i] = parts[part].source;
  }
  return out;
}

}  // namespace millrace
