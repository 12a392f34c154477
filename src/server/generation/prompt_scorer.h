// PromptScorer: computes log-probabilities of a prompt's tokens, for requests that echo the prompt with them. The
// engine computes logits only where it samples, so the scorer has its own thread and its own memory, which is allocated
// with the first such request. Requests take turns, one prompt at a time (fair_worker.h). Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "millrace/options.h"
#include "server/generation/answer.h"
#include "server/generation/fair_worker.h"

namespace millrace {

class Scorer;

class PromptScorer {
 public:
  struct Work {
    std::vector<std::vector<TokenId>> prompts;  // at least one token each, within the engine's context
    int64_t top = 0;                            // number of most likely tokens at each position
    WorkShare share;
    std::shared_ptr<std::atomic<bool>> unwanted;  // set when the client has left
    // Called on the scorer's thread with the tokens of each prompt. The log-probability of a first token is always 0.
    std::function<void(Result<std::vector<std::vector<ChosenToken>>>)> done;
  };

  PromptScorer(std::shared_ptr<const LanguageModel> model, const EngineOptions& engine, int64_t context);
  ~PromptScorer();

  // Errors: resource (the queue is full).
  Result<void> add(Work work);

 private:
  struct Job;
  bool run(Job& job, size_t piece);
  Result<void> score(Job& job, const std::vector<TokenId>& prompt);

  std::shared_ptr<const LanguageModel> model_;
  EngineOptions engine_;
  int64_t context_;
  std::unique_ptr<Scorer> scorer_;  // used by the thread; null until needed
  FairWorker thread_;               // last: it uses the others
};

}  // namespace millrace
