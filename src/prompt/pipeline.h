// PromptPipeline: the prompt compressors of a request, in the order in which they run between the tokenizer and the
// engine. Each reports its effect. Immutable after create(); several threads may call apply() at once if each has its
// own PromptScores.
//
//   text -> tokens -> compressor -> compressor -> tokens of the Request
//                         ^ scores: a model's forward pass over the prompt, only if a compressor needs them
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prompt/compressor.h"

namespace millrace {

class Tokenizer;

// Effect of one compressor.
struct PromptEffect {
  std::string name;     // "selective_context"
  std::string options;  // as the request gives them, "ratio=0.5"
  int64_t tokens_before = 0, tokens_after = 0;
  double seconds = 0;

  // Fraction of the tokens that remain; 1 without tokens.
  double ratio() const {
    return tokens_before > 0 ? static_cast<double>(tokens_after) / static_cast<double>(tokens_before) : 1;
  }
  bool operator==(const PromptEffect&) const = default;
};

struct CompressedPrompt {
  std::vector<TokenId> tokens;
  std::vector<int64_t> kept;  // indices of `tokens` in the original prompt; kWrittenToken: a compressor wrote it
  std::vector<PromptEffect> effects;
};

// Returns the maximum number of prompt tokens that leaves room for an answer of `answer_tokens`. If `answer_tokens` is
// negative (no limit), an eighth of the context is left for the answer.
int64_t prompt_budget(int64_t context, int64_t answer_tokens);

class PromptPipeline {
 public:
  // `passes`: compressors in order, each NAME[:key=value,...]. Errors: user (unknown name or option).
  static Result<PromptPipeline> create(std::span<const std::string> passes);

  bool empty() const { return passes_.empty(); }
  // Returns the files of the models that compute scores, without duplicates; "" is the model that answers.
  std::vector<std::string> models() const { return models_for(kNeedsSelfInformation); }
  // Variants for the models that embed texts, and for those that answer messages.
  std::vector<std::string> embedders() const { return models_for(kNeedsEmbeddings); }
  std::vector<std::string> writers() const { return models_for(kNeedsAnswers); }
  // Opens the files that compressors read, by member and path, and adds those that `files` lacks. Errors: those of
  // PromptCompressor::open_file().
  using Files = std::map<std::pair<std::string, std::string>, std::shared_ptr<const PromptFile>>;
  Result<void> open_files(Files& files) const;
  // Returns true if answers should be passed to recover_answer() (prompt/recovery.h).
  bool recovers() const;

  // Runs the compressors. `sources`: of each token; empty: all are text. Special tokens always remain. `budget`: tokens
  // that should remain at most. `scores`: may be null if no compressor needs a model. Errors: unsupported (no
  // tokenizer), internal (a compressor's result is invalid), and the errors of `scores`.
  Result<CompressedPrompt> apply(const Tokenizer* tokenizer, std::span<const TokenId> tokens,
                                 std::span<const PromptSource> sources, int64_t budget, PromptScores* scores) const;

 private:
  struct Pass {
    std::string name, options;
    std::shared_ptr<const PromptCompressor> compressor;
  };

  std::vector<std::string> models_for(PromptNeeds need) const;

  std::vector<Pass> passes_;
};

}  // namespace millrace
