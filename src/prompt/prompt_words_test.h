// For tests of compressors: prompts of words, one token each, and a language model that can be computed by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/philox.h"
#include "prompt/compressor.h"

namespace millrace {

inline constexpr int64_t kAnyBudget = std::numeric_limits<int64_t>::max();

// "a b|c\n" is the tokens "a", " b", "c" and "\n": words begin at a space or after |; a line break is its own token. A
// token in [brackets] is fixed. A text has the same token id in all prompts.
struct WordPrompt {
  std::vector<TokenId> tokens;
  std::vector<std::string> texts;
  std::vector<char> fixed;
  std::vector<PromptSource> sources;

  explicit WordPrompt(std::string_view text) {
    std::string word;
    bool is_fixed = false;
    const auto end = [&] {
      if (!word.empty()) add(word, is_fixed);
      word.clear();
      is_fixed = false;
    };
    for (const char c : text) {
      if (c == ' ' || c == '|' || c == '\n' || c == '[') end();
      if (c == ']')
        end();
      else if (c == '[')
        is_fixed = true;
      else if (c != '|')
        word += c;
      if (c == '\n') end();
    }
    end();
  }

  static TokenId id_of(const std::string& text) {
    static std::map<std::string, TokenId> ids;
    return ids.emplace(text, static_cast<TokenId>(ids.size())).first->second;
  }
  void add(const std::string& text, bool is_fixed) {
    tokens.push_back(id_of(text));
    texts.push_back(text);
    fixed.push_back(is_fixed);
    sources.push_back(is_fixed ? PromptSource::fixed : PromptSource::text);
  }
  PromptView view() const { return {tokens, texts, fixed, sources}; }
  std::string text_of(const std::vector<int64_t>& kept) const {
    std::string out;
    for (const int64_t index : kept) out += texts[static_cast<size_t>(index)];
    return out;
  }
};

// A language model: a token costs what its text says (drawn from its id), and one nat less if its text is in the
// context already. The first token costs infinitely much.
class RepeatingModel final : public PromptScores {
 public:
  std::map<std::string, double> costs;  // by text; others are drawn
  std::vector<std::vector<TokenId>> asked;

  double cost(TokenId token) const {
    for (const auto& [text, value] : costs)
      if (WordPrompt::id_of(text) == token) return value;
    return 2 + 4 * philox_uniform(11, 3, static_cast<uint64_t>(token));
  }
  double after(std::span<const TokenId> context, TokenId token) const {
    return cost(token) - (std::ranges::find(context, token) != context.end() ? 1 : 0);
  }

  Result<std::vector<float>> self_information(const std::string&, std::span<const TokenId> tokens) override {
    asked.emplace_back(tokens.begin(), tokens.end());
    std::vector<float> out;
    for (size_t i = 0; i < tokens.size(); ++i) out.push_back(static_cast<float>(after(tokens.first(i), tokens[i])));
    if (!out.empty()) out[0] = std::numeric_limits<float>::infinity();
    return out;
  }
  Result<std::vector<std::vector<float>>> embeddings(const std::string&,
                                                     std::span<const std::vector<TokenId>> texts) override {
    std::vector<std::vector<float>> out;
    for (const auto& text : texts) out.push_back(vectors.at(text.front()));
    return out;
  }
  Result<std::string> answer(const std::string& model, const std::string& message, int64_t max_tokens) override {
    messages.push_back(model + ": " + message);
    most_written = max_tokens;
    return summary;
  }

  // The state of a token is the vector of its text alone.
  Result<void> hidden_states(const std::string&, std::span<const TokenId> tokens, const StateSink& sink) override {
    for (size_t i = 0; i < tokens.size(); ++i) MILLRACE_TRY_VOID(sink(i, vectors.at(tokens[i])));
    return {};
  }
  Result<std::shared_ptr<const PromptFile>> file(const std::string& member, const std::string& path) override {
    const auto found = files.find({member, path});
    if (found == files.end()) return PromptScores::file(member, path);
    return found->second;
  }

  std::map<std::pair<std::string, std::string>, std::shared_ptr<const PromptFile>> files;  // by member and path
  std::map<TokenId, std::vector<float>> vectors;  // by the first token of a text
  std::string summary;                            // the answer to any message
  std::vector<std::string> messages;              // with the names of models before them
  int64_t most_written = 0;
};

inline std::string compressed_text(const std::string& member, const WordPrompt& prompt, PromptScores& scores,
                                   int64_t budget = kAnyBudget) {
  const auto made = make_prompt_compressor(member);
  if (!made.ok()) return "error: " + made.error().message;
  const auto rest = (*made)->compress(prompt.view(), scores, budget);
  return rest.ok() ? prompt.text_of(rest->kept) : "error: " + rest.error().message;
}

// Lines of words that are drawn, with a fixed token at the beginning, and a question.
inline WordPrompt drawn_prompt(uint64_t seed, int64_t lines) {
  uint64_t drawn = 0;
  const auto draw = [&](int below) { return static_cast<int>(philox_uniform(seed, 9, drawn++) * below); };
  std::string text = "[<s>]";
  for (int64_t line = 0; line < lines; ++line) {
    for (int words = 2 + draw(12); words > 0; --words) text += " w" + std::to_string(draw(60));
    text += "\n";
  }
  return WordPrompt(text + "Who w" + std::to_string(draw(60)) + " w" + std::to_string(draw(60)) + " ?");
}

}  // namespace millrace
