// PromptPipeline: the prompt rewriters of a request, in order, between its tokens and the engine. Each reports its
// effect. Plain data after create(); apply() may run on several threads at once if each has its own scores.
//
//   text -> tokens -> compressor -> compressor -> tokens of the Request
//                         ^ scores: a model's forward pass over the prompt, only if a compressor needs them
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "prompt/compressor.h"

namespace millrace {

class Tokenizer;

// Scores of a model that compressors need (evaluate/prompt_scores.h). Not thread-safe.
class PromptScores {
 public:
  virtual ~PromptScores() = default;
  // -log p(token | tokens before) in nats, infinite where there is no token before. `model`: as
  // PromptCompressor::model(). Errors: user (no such model here, a prompt that is too long), resource, unsupported.
  virtual Result<std::vector<float>> self_information(const std::string& model, std::span<const TokenId> tokens) = 0;
};

// Effect of one compressor.
struct PromptEffect {
  std::string name;     // "selective_context"
  std::string options;  // as given, "ratio=0.5"
  int64_t tokens_before = 0, tokens_after = 0;
  double seconds = 0;

  // Tokens that remain of one token.
  double ratio() const {
    return tokens_before > 0 ? static_cast<double>(tokens_after) / static_cast<double>(tokens_before) : 1;
  }
  bool operator==(const PromptEffect&) const = default;
};

struct CompressedPrompt {
  std::vector<TokenId> tokens;
  std::vector<int64_t> kept;  // their indices in the original prompt
  std::vector<PromptEffect> effects;
};

// The most tokens of a prompt that leave room for an answer of `answer_tokens`; for one without a limit (negative), an
// eighth of the context.
int64_t prompt_budget(int64_t context, int64_t answer_tokens);

class PromptPipeline {
 public:
  // Each pass is NAME[:key=value,...]. Errors (user): unknown name or option.
  static Result<PromptPipeline> create(std::span<const std::string> passes);

  bool empty() const { return passes_.empty(); }
  // The models that compute scores, each once: files, or "" for the model that answers.
  std::vector<std::string> models() const;

  // `fixed` has a 1 for each token that must remain; empty: none. Special tokens always remain. `scores` may be null if
  // models() is empty. Errors: unsupported (no tokenizer), those of `scores`, internal (a compressor's fault).
  Result<CompressedPrompt> apply(const Tokenizer* tokenizer, std::span<const TokenId> tokens,
                                 std::span<const char> fixed, int64_t budget, PromptScores* scores) const;

 private:
  struct Pass {
    std::string name, options;
    std::shared_ptr<const PromptCompressor> compressor;
  };

  std::vector<Pass> passes_;
};

}  // namespace millrace
