// AnswerPrompts: the tokens of a question's prompt with one configuration, after its prompt compressors, and the answer
// to a compressed prompt as text. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compare/config.h"
#include "evaluate/prompt_scores.h"
#include "prompt/document_prompt.h"
#include "prompt/pipeline.h"

namespace millrace {

struct AnswerRequest;

// Returns the whole prompt. Errors: those of templates and tokenizers.
Result<DocumentPrompt> whole_prompt(const LanguageModel& model, const AnswerRequest& request);

class AnswerPrompts {
 public:
  // Errors: those of PromptPipeline::create and ModelScores::open.
  static Result<std::unique_ptr<AnswerPrompts>> create(const CompareConfig& config);

  struct Prompt {
    DocumentPrompt shown;           // as the model reads it
    std::vector<TokenId> original;  // before compression; empty without compressors
    double seconds = 0;             // duration of the compression
  };
  // Documents of a request that is compressed become a part of its text. Errors: those of whole_prompt() and
  // PromptPipeline::apply().
  Result<Prompt> prompt(const AnswerRequest& request);
  // Variant for tokens of a text, before an answer of `answer_tokens`.
  Result<Prompt> prompt(std::vector<TokenId> tokens, int64_t answer_tokens);

  // Returns the text of an answer's tokens with its quotes replaced (prompt/recovery.h); `text`: the answer as it is,
  // which is returned if no compressor recovers.
  std::string recovered(const Prompt& prompt, const std::vector<TokenId>& answer, std::string text) const;

 private:
  AnswerPrompts(const CompareConfig& config, PromptPipeline pipeline);
  Result<Prompt> compressed(std::vector<TokenId> tokens, std::span<const PromptSource> sources, int64_t answer_tokens);

  const CompareConfig& config_;
  const PromptPipeline pipeline_;
  ModelScores scores_;
};

}  // namespace millrace
