// PromptWorker: compresses the prompts of requests before the engine sees them, on a thread of its own, because scoring
// a prompt runs a model. One prompt at a time, in turns between requests (fair_worker.h); the result does not depend on
// the turns. The model that answers scores in its engine's steps (prompt_reads.h); the memory of other models' scorers
// is charged when it is created. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "evaluate/prompt_scores.h"
#include "millrace/options.h"
#include "server/generation/fair_worker.h"

namespace millrace {

class Engine;
class QueuePlace;

class PromptWorker {
 public:
  struct Prompt {
    std::vector<TokenId> tokens;
    std::vector<PromptSource> sources;  // PromptPipeline::apply()
  };
  struct Work {
    std::vector<Prompt> prompts;
    PromptPipeline pipeline;
    int64_t budget = 0;  // tokens of each compressed prompt
    WorkShare share;
    std::shared_ptr<QueuePlace> place;                                // place in the engine's queue, for all of it
    std::shared_ptr<std::atomic<bool>> unwanted;                      // set when the client has left
    std::function<void(Result<std::vector<CompressedPrompt>>)> done;  // on the worker's thread
  };

  // `passes` apply to requests that do not choose their own. Errors: PromptPipeline::create, ModelScores::open.
  static Result<std::unique_ptr<PromptWorker>> create(std::shared_ptr<const LanguageModel> model,
                                                      std::vector<std::string> passes, int threads);
  ~PromptWorker();

  // From now on the model's own scores are computed in its engine's steps (prompt_reads.h). Before the first add(); the
  // engine outlives the worker's thread.
  void use_engine(Engine& engine);

  const std::vector<std::string>& passes() const { return passes_; }

  // `work.prompts` has at least one. Errors: resource (the queue is full).
  Result<void> add(Work work);
  // Drops waiting work. Must not be called from the worker's thread.
  void stop() {
    stopping_ = true;
    thread_.stop();
  }

 private:
  struct Job;
  PromptWorker(std::shared_ptr<const LanguageModel> model, std::vector<std::string> passes, int threads);
  bool run(Job& job, size_t piece);
  Result<void> check() const;
  Result<std::vector<float>> score(Engine& engine, std::span<const TokenId> tokens,
                                   std::span<const ScoreWindow> windows) const;
  Result<std::vector<std::vector<float>>> embed(Engine& engine, std::span<const std::vector<TokenId>> texts) const;
  Result<void> read_states(Engine& engine, std::span<const TokenId> tokens, std::span<const ScoreWindow> windows,
                           const PromptScores::StateSink& sink) const;

  std::shared_ptr<const LanguageModel> model_;
  const std::vector<std::string> passes_;
  ModelScores scores_;  // used by the thread once it runs, as is `current_`
  const Work* current_ = nullptr;
  std::atomic<bool> stopping_ = false;
  FairWorker thread_;  // last: it uses the others
};

}  // namespace millrace
