// TextWriter: answers single messages greedily, one after the other, with a model of its own, for prompt compressors
// that summarize. Like Scorer, it runs the model with its own KV cache, outside an engine. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/model_runner.h"
#include "run/language_model.h"

namespace millrace {

class TextWriter {
 public:
  static constexpr int64_t kMaxTokens =
      4096;  // tokens of a message with its answer; fewer for models with a shorter context

  // Charges the runner to the model's accounts. `threads`: 0: all cores. Errors: resource, unsupported (no tokenizer,
  // an encoder).
  static Result<std::unique_ptr<TextWriter>> create(std::shared_ptr<const LanguageModel> model, int threads);

  // Returns the answer to one message of a user, in the model's chat template if it has one: its likeliest tokens, up
  // to an end token or `max_tokens`. `check`: called before each token; if it returns an error, writing stops with it;
  // may be null. Errors: user (the message does not fit the context with its answer), those of the template.
  Result<std::string> answer(const std::string& message, int64_t max_tokens,
                             const std::function<Result<void>()>& check = nullptr);

 private:
  TextWriter() = default;
  Result<TokenId> next_after(std::span<const TokenId> tokens, int64_t position);

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<BlockId> blocks_;
  int64_t context_ = 0;
};

}  // namespace millrace
