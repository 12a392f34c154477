// For tests: a tokenizer with a fixed list of texts as tokens, prompts of such tokens, and scores that the test sets.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "prompt/pipeline.h"
#include "text/tokenizer.h"

namespace millrace {

// Token ids are indices of `texts`; the ids in `controls` are control tokens.
inline std::unique_ptr<Tokenizer> tokenizer_of(const std::vector<std::string>& texts,
                                               const std::vector<TokenId>& controls = {}) {
  TokenizerSpec spec;
  spec.kind = "spm";
  spec.tokens = texts;
  for (std::string& text : spec.tokens)
    for (size_t at; (at = text.find(' ')) != std::string::npos;) text.replace(at, 1, "\u2581");
  spec.scores.assign(texts.size(), 0);
  spec.types.assign(texts.size(), TokenType::normal);
  for (const TokenId id : controls) spec.types[static_cast<size_t>(id)] = TokenType::control;
  auto made = Tokenizer::create(std::move(spec));
  return made.ok() ? std::move(*made) : nullptr;
}

class GivenScores final : public PromptScores {
 public:
  std::map<TokenId, float> of;
  std::map<TokenId, std::vector<float>> vectors;  // by the first token of a text
  std::string model;                              // model of the last call
  int calls = 0;
  std::vector<std::vector<TokenId>> asked;  // the tokens of each call

  Result<std::vector<float>> self_information(const std::string& by, std::span<const TokenId> tokens) override {
    model = by;
    ++calls;
    asked.emplace_back(tokens.begin(), tokens.end());
    std::vector<float> out;
    for (const TokenId token : tokens) out.push_back(of[token]);
    return out;
  }
  Result<std::vector<std::vector<float>>> embeddings(const std::string& by,
                                                     std::span<const std::vector<TokenId>> texts) override {
    model = by;
    ++calls;
    std::vector<std::vector<float>> out;
    for (const auto& text : texts) out.push_back(vectors[text.front()]);
    return out;
  }
  Result<std::string> answer(const std::string&, const std::string&, int64_t) override {
    return Error::internal("not asked for");
  }
};

}  // namespace millrace
