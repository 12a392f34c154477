// ModelScores: the scores that prompt compressors need, computed by the model that answers or by another one, which
// reads the same text with its own tokenizer. In a server the model that answers scores in its engine's steps
// (score_with()). Other models, and the answering model without an engine, have a scorer, which runs on the threads of
// the model that answers and in its memory budget. Windows of kWindow tokens, or fewer if memory is short, overlap by
// half. So memory does not grow with the prompt, and the scores depend on the tokens and the window alone. Not
// thread-safe.
//
// Memory of a scorer: keys and values of three windows in f16, and the activations and logits of one batch; charged to
// the model's accounts when it is opened.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "evaluate/scorer.h"
#include "prompt/pipeline.h"

namespace millrace {

class ModelScores final : public PromptScores {
 public:
  static constexpr int64_t kWindow = 512;                  // tokens; less for models with a shorter context
  static constexpr int64_t kMaxTokens = int64_t{1} << 17;  // maximum for one prompt

  // `model` answers. `threads`: of a forward pass, 0: all cores.
  ModelScores(std::shared_ptr<const LanguageModel> model, int threads);

  // Prepares scoring by these models (PromptPipeline::models()). The files share the memory budget of the model that
  // answers. Errors: those of LanguageModel::load, resource, unsupported (no tokenizer).
  Result<void> open(std::span<const std::string> models);

  // -log of the probability of each token that the windows score, in their order, by the model that answers.
  using WindowScores =
      std::function<Result<std::vector<float>>(std::span<const TokenId> tokens, std::span<const ScoreWindow> windows)>;
  // Scores in windows of up to `context` tokens.
  void score_with(WindowScores scores, int64_t context) {
    own_scores_ = std::move(scores);
    own_context_ = context;
  }

  // Called between the passes of a scorer; its error ends the scores.
  void check_with(std::function<Result<void>()> check) { check_ = std::move(check); }

  // The model that answers is opened when it is first needed; files must have been opened.
  Result<std::vector<float>> self_information(const std::string& model, std::span<const TokenId> tokens) override;

 private:
  struct Opened {
    std::shared_ptr<const LanguageModel> model;
    std::unique_ptr<Scorer> scorer;
  };
  friend struct ModelScoresPeek;  // tests
  Result<void> open_one(const std::string& path);
  Result<std::vector<float>> score_tokens(Opened& one, std::span<const TokenId> tokens);
  Result<std::vector<float>> by_text(Opened& other, std::span<const TokenId> tokens);
  Result<std::vector<float>> by_engine(std::span<const TokenId> tokens) const;

  std::shared_ptr<const LanguageModel> model_;
  int threads_;
  int64_t own_context_ = 0;
  std::function<Result<void>()> check_;   // null: none
  WindowScores own_scores_;               // null: the scorer is used
  std::shared_ptr<ThreadPool> pool_;      // pool of the model that answers; null until a scorer is opened
  std::map<std::string, Opened> opened_;  // by path; "": the model that answers
};

}  // namespace millrace
