// PromptScorer: log-probabilities of a prompt's own tokens, for requests that have it echoed with them. It runs beside
// the engine on a thread of its own, over memory of its own that is taken with the first such request: an engine
// computes logits where it samples only. Requests take turns, a prompt at a time (fair_worker.h). Thread-safe.
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
    std::vector<std::vector<TokenId>> prompts;  // each at least one token, all within the engine's context
    int64_t top = 0;                            // likeliest tokens beside each
    WorkShare share;
    std::shared_ptr<std::atomic<bool>> unwanted;  // nobody waits for it any more
    // On the scorer's thread: the tokens of each prompt; the first one's log-probability is 0 and means nothing.
    std::function<void(Result<std::vector<std::vector<ChosenToken>>>)> done;
  };

  PromptScorer(std::shared_ptr<const LanguageModel> model, const EngineOptions& engine, int64_t context);
  ~PromptScorer();

  // Errors: resource (too many wait).
  Result<void> add(Work work);

 private:
  struct Job;
  bool run(Job& job, size_t piece);
  Result<void> score(Job& job, const std::vector<TokenId>& prompt);

  std::shared_ptr<const LanguageModel> model_;
  EngineOptions engine_;
  int64_t context_;
  std::unique_ptr<Scorer> scorer_;  // the thread's; null until it is needed
  FairWorker thread_;               // last: it uses the others
};

}  // namespace millrace
