// PromptScorer: computes log-probabilities of a prompt's tokens, for requests that echo the prompt with them. The
// prompts run in the engine's steps (prompt_reads.h); a thread waits for them. Requests take turns, one prompt at a
// time (fair_worker.h). Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "server/generation/answer.h"
#include "server/generation/fair_worker.h"

namespace millrace {

class Engine;
class QueuePlace;

class PromptScorer {
 public:
  struct Work {
    std::vector<std::vector<TokenId>> prompts;  // at least one token each, within the engine's context
    int64_t top = 0;                            // number of most likely tokens at each position
    WorkShare share;
    std::shared_ptr<QueuePlace> place;            // place in the engine's queue, for the longest prompt
    std::shared_ptr<std::atomic<bool>> unwanted;  // set when the client has left
    // Called on the scorer's thread with the tokens of each prompt. The log-probability of a first token is always 0.
    std::function<void(Result<std::vector<std::vector<ChosenToken>>>)> done;
  };

  // `engine`, of a model with this vocabulary, outlives the scorer.
  PromptScorer(Engine& engine, int64_t vocab);
  ~PromptScorer();

  // Errors: resource (the queue is full).
  Result<void> add(Work work);

 private:
  struct Job;
  bool run(Job& job, size_t piece);
  Result<void> score(Job& job, const std::vector<TokenId>& prompt);

  Engine& engine_;
  const int64_t vocab_;
  std::atomic<bool> stopping_ = false;
  FairWorker thread_;  // last: it uses the others
};

}  // namespace millrace
