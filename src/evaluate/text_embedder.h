// TextEmbedder: embeds short texts with a model file that is opened once, for prompt compressors. A vector is what the
// file declares (pooling, dense layers), or the mean of the final hidden states, normalized. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evaluate/embedder.h"
#include "evaluate/scorer.h"
#include "evaluate/vector_head.h"
#include "prompt/compressor.h"

namespace millrace {

// Returns windows of at most `context` tokens in which each token's hidden state is read once: document_windows(), and
// the first token too.
std::vector<ScoreWindow> state_windows(int64_t tokens, int64_t context);

class TextEmbedder {
 public:
  static constexpr int64_t kMaxTokens =
      512;  // tokens of a text, from its beginning; fewer for models with a shorter context

  // Charges the embedder to the model's accounts. `threads`: 0: all cores. Errors: those of Embedder::create,
  // model_pooling() and VectorHead::read(), unsupported (no tokenizer).
  static Result<std::unique_ptr<TextEmbedder>> create(std::shared_ptr<const LanguageModel> model, int threads);

  // Returns a vector of length 1 for each text. Errors: those of Embedder::run.
  Result<std::vector<std::vector<float>>> of_texts(std::span<const std::string> texts);
  // Variant for tokens of this model. No text is empty.
  Result<std::vector<std::vector<float>>> of_tokens(std::span<const std::vector<TokenId>> texts);

  // Passes the final hidden state of each token to `sink`, in windows of state_windows(). `check`: called between
  // windows, may be null; if it returns an error, states() stops with it. Errors: those of Embedder::run.
  Result<void> states(std::span<const TokenId> tokens, const PromptScores::StateSink& sink,
                      const std::function<Result<void>()>& check);

  const LanguageModel& model() const { return *model_; }

 private:
  TextEmbedder(std::shared_ptr<const LanguageModel> model, Pooling pooling, VectorHead head)
      : model_(std::move(model)), pooling_(pooling), head_(std::move(head)) {}

  std::shared_ptr<const LanguageModel> model_;
  const Pooling pooling_;
  const VectorHead head_;
  std::unique_ptr<Embedder> embedder_;
};

}  // namespace millrace
