// The parts are found by rendering the conversation a second time with a marker in place of each message:
//
//   rendered  <|user|> MARKER0 <|end|> <|assistant|>          the text around the markers is the template's
//   text      <|user|> Who was Ada? <|end|> <|assistant|>     it is verified in the text, with the messages in between
#include "server/generation/prompt_parts.h"

#include <fmt/format.h>

#include <optional>

#include "prompt/chat_prompt.h"
#include "prompt/prompt_report.h"
#include "prompt/token_ends.h"
#include "run/language_model.h"
#include "server/models/served_model.h"

namespace millrace {
namespace {

constexpr const char* kMarker = "MillracePromptPart";

struct TextRange {
  size_t begin = 0, end = 0;
};

bool may_be_dropped(const Json& message) {
  const auto role = message.find("role"), content = message.find("content");
  return role != message.end() && (*role == "user" || *role == "tool") && content != message.end() &&
         content->is_string();
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

// The messages' ranges in `text`; none if they are not found in order.
std::vector<TextRange> find_contents(const LanguageModel& model, const Json& input, bool add_generation_prompt,
                                     const std::string& text) {
  if (text.find(kMarker) != std::string::npos) return {};
  Json marked = input;
  std::vector<std::string> contents;
  for (Json& message : marked["messages"]) {
    if (!message.is_object() || !may_be_dropped(message)) continue;
    contents.push_back(message["content"].get<std::string>());
    message["content"] = fmt::format("{}{}.", kMarker, contents.size() - 1);
  }
  if (contents.empty()) return {};
  const auto rendered = chat_text(model, marked, add_generation_prompt);
  std::vector<std::string> around;
  std::vector<size_t> numbers;
  if (!rendered.ok() || !split_at_markers(*rendered, around, numbers) || text.compare(0, around[0].size(), around[0]))
    return {};
  std::vector<TextRange> out;
  size_t at = around[0].size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] >= contents.size()) return {};
    const auto end = content_end(text, at, contents[numbers[i]], around[i + 1], i + 1 == numbers.size());
    if (!end) return {};
    out.push_back({at, *end});
    at = *end + around[i + 1].size();
  }
  return out;
}

}  // namespace

std::vector<char> fixed_parts(const LanguageModel& model, const Json& input, bool add_generation_prompt,
                              const std::string& text, const std::vector<TokenId>& tokens) {
  std::vector<char> fixed(tokens.size(), 1);
  const Tokenizer* tokenizer = model.parts().tokenizer.get();
  const auto ends = tokenizer ? token_ends(*tokenizer, tokens, text) : std::nullopt;
  if (!ends) return fixed;
  const std::vector<TextRange> parts = find_contents(model, input, add_generation_prompt, text);
  size_t part = 0;
  for (size_t i = 0, begin = 0; i < tokens.size(); begin = (*ends)[i++]) {
    while (part < parts.size() && parts[part].end <= begin) ++part;
    if (part == parts.size()) break;
    if ((*ends)[i] > begin && begin >= parts[part].begin && (*ends)[i] <= parts[part].end) fixed[i] = 0;
  }
  return fixed;
}

void take_compressed(GenerationRequest& params, std::vector<CompressedPrompt> compressed) {
  std::vector<PromptEffect> effects;  // of each pass over all prompts
  for (size_t i = 0; i < params.prompts.size(); ++i) {
    AskedPrompt& prompt = params.prompts[i];
    params.compressed_tokens += std::ssize(prompt.tokens) - std::ssize(compressed[i].tokens);
    add_effects(effects, compressed[i].effects);
    if (compressed[i].tokens == prompt.tokens) continue;
    prompt.tokens = std::move(compressed[i].tokens);
    if (params.echo) prompt.text = params.served->model->decode(prompt.tokens);
  }
  for (Json& one : applied_prompts(effects)) params.applied.push_back(std::move(one));
}

}  // namespace millrace
