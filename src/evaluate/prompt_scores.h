// ModelScores: computes the scores that prompt compressors need, with the answering model or with another model, which
// reads the same text with its own tokenizer. In a server, the answering model computes scores in its engine's steps
// (score_with()). Other models, and the answering model without an engine, use a Scorer, which runs on the threads and
// in the memory budget of the answering model. Windows have kWindow tokens, or fewer if memory is short, and overlap by
// half. Memory therefore does not grow with the prompt, and scores depend only on the tokens and the window size. Not
// thread-safe.
//
// Opening a scorer reserves memory in the model's accounts: keys and values of three windows in f16, and the
// activations and logits of one batch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "evaluate/scorer.h"
#include "evaluate/text_embedder.h"
#include "evaluate/text_writer.h"
#include "prompt/pipeline.h"

namespace millrace {

class ModelScores final : public PromptScores {
 public:
  static constexpr int64_t kWindow = 512;                  // tokens; fewer for models with a shorter context
  static constexpr int64_t kMaxTokens = int64_t{1} << 17;  // maximum tokens of one prompt

  // `model`: the answering model. `threads`: threads of a forward pass; 0: all cores.
  ModelScores(std::shared_ptr<const LanguageModel> model, int threads);

  // Opens these models for scoring, or all that a pipeline needs, in the memory budget of the answering model. Errors:
  // those of LanguageModel::load, resource, unsupported (no tokenizer).
  Result<void> open(std::span<const std::string> models);
  Result<void> open(const PromptPipeline& pipeline);

  // Computes with the answering model, for each token that the windows score, -log of its probability, in order.
  using WindowScores =
      std::function<Result<std::vector<float>>(std::span<const TokenId> tokens, std::span<const ScoreWindow> windows)>;
  // Makes the answering model use `scores`, in windows of up to `context` tokens, instead of a Scorer.
  void score_with(WindowScores scores, int64_t context) {
    own_scores_ = std::move(scores);
    own_context_ = context;
  }

  // Computes with the answering model the mean of the final hidden states of each text, of the first
  // TextEmbedder::kMaxTokens tokens.
  using MeanStates =
      std::function<Result<std::vector<std::vector<float>>>(std::span<const std::vector<TokenId>> texts)>;
  // Makes the answering model use `states` instead of an Embedder.
  void embed_with(MeanStates states) { own_states_ = std::move(states); }

  // Computes with the answering model the final hidden states of the tokens that the windows score, in order.
  using WindowStates = std::function<Result<void>(std::span<const TokenId> tokens, std::span<const ScoreWindow> windows,
                                                  const StateSink& sink)>;
  // Makes the answering model use `states`, in windows of up to `context` tokens, instead of an Embedder.
  void read_states_with(WindowStates states, int64_t context) {
    own_token_states_ = std::move(states);
    own_context_ = context;
  }

  // Calls `check` between the passes of a scorer; if it returns an error, scoring stops with this error.
  void check_with(std::function<Result<void>()> check) { check_ = std::move(check); }

  // A scorer of the answering model is opened on first use; other models must have been opened by open().
  Result<std::vector<float>> self_information(const std::string& model, std::span<const TokenId> tokens) override;
  Result<std::vector<std::vector<float>>> embeddings(const std::string& model,
                                                     std::span<const std::vector<TokenId>> texts) override;
  Result<std::string> answer(const std::string& model, const std::string& message, int64_t max_tokens) override;
  Result<void> hidden_states(const std::string& model, std::span<const TokenId> tokens, const StateSink& sink) override;
  Result<std::shared_ptr<const PromptFile>> file(const std::string& member, const std::string& path) override;

 private:
  struct Opened {
    std::shared_ptr<const LanguageModel> model;
    std::unique_ptr<Scorer> scorer;
  };
  friend struct ModelScoresPeek;  // tests
  static Error not_opened(const std::string& model);
  Result<std::shared_ptr<const LanguageModel>> load(const std::string& path) const;
  Result<void> open_one(const std::string& path);
  Result<void> open_embedder(const std::string& path);
  Result<std::vector<float>> score_tokens(Opened& one, std::span<const TokenId> tokens);
  Result<std::vector<float>> by_text(Opened& other, std::span<const TokenId> tokens);
  Result<void> states_by_text(TextEmbedder& other, std::span<const TokenId> tokens, const StateSink& sink) const;
  Result<std::vector<float>> by_engine(std::span<const TokenId> tokens) const;

  std::shared_ptr<const LanguageModel> model_;
  int threads_;
  int64_t own_context_ = 0;
  std::function<Result<void>()> check_;   // null: none
  WindowScores own_scores_;               // null: the scorer is used
  MeanStates own_states_;                 // null: an embedder is used
  WindowStates own_token_states_;         // null: an embedder is used
  std::shared_ptr<ThreadPool> pool_;      // pool of the answering model; null until a scorer is opened
  std::map<std::string, Opened> opened_;  // by path; "": the answering model
  std::map<std::string, std::unique_ptr<TextEmbedder>> embedders_;  // by path
  std::map<std::string, std::unique_ptr<TextWriter>> writers_;      // by path
  PromptPipeline::Files files_;
};

}  // namespace millrace
