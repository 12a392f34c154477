#include "prompt/document_prompt.h"

#include <algorithm>
#include <string_view>

#include "base/ordered_json.h"
#include "prompt/chat_prompt.h"
#include "run/language_model.h"

namespace millrace {
namespace {

constexpr std::string_view kMark = "[[millrace:documents]]";

}  // namespace

void DocumentPrompt::add_documents(std::span<const std::vector<TokenId>> list) {
  for (const auto& ids : list) {
    const int64_t begin = std::ssize(tokens);
    add(ids);
    documents.push_back({begin, std::ssize(tokens)});
  }
}

Result<std::vector<TokenId>> encode_within(const LanguageModel& model, const std::string& text) {
  const auto encode = [&](const std::string& one) { return model.encode(one, /*add_special=*/false); };
  MILLRACE_TRY(const auto line, encode("\n"));
  MILLRACE_TRY(auto tokens, encode("\n" + text));
  if (tokens.size() <= line.size() || !std::equal(line.begin(), line.end(), tokens.begin())) return encode(text);
  tokens.erase(tokens.begin(), tokens.begin() + std::ssize(line));
  return tokens;
}

Result<void> mark_documents(nlohmann::ordered_json& messages) {
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    if (!message->is_object() || message->value("role", "") != "user") continue;
    auto& content = (*message)["content"];
    if (!content.is_string()) break;
    content = std::string(kMark) + content.get<std::string>();
    return {};
  }
  return Error::user("documents: come first in the last message of the user, and there is none with a text");
}

Result<DocumentPrompt> marked_prompt(const LanguageModel& model, const std::string& text,
                                     std::span<const std::vector<TokenId>> documents) {
  const size_t at = text.find(kMark);
  if (at == std::string::npos || text.find(kMark, at + 1) != std::string::npos)
    return Error::user(
        "documents: the chat template changes the user's message, or repeats it; send a prompt that is text instead");
  DocumentPrompt prompt;
  MILLRACE_TRY(prompt.tokens, encode_chat(model, text.substr(0, at)));
  prompt.add_documents(documents);
  MILLRACE_TRY(const auto question, encode_within(model, text.substr(at + kMark.size())));
  prompt.add(question);
  return prompt;
}

std::string shown_prompt(std::string text, std::span<const std::string> documents) {
  const size_t at = text.find(kMark);
  if (at == std::string::npos) return text;
  std::string all;
  for (const std::string& document : documents) all += document;
  return text.replace(at, kMark.size(), all);
}

}  // namespace millrace
