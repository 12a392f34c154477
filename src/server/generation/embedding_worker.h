// EmbeddingWorker: embeds texts for requests, on a thread of its own beside the engine, over memory of its own: as much
// as the longest text so far needs, and none before the first. A request of many texts is embedded a batch at a time,
// between those of others (fair_worker.h); its vectors do not depend on that. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "evaluate/pooling.h"
#include "millrace/model.h"
#include "millrace/options.h"
#include "server/generation/fair_worker.h"

namespace millrace {

class Embedder;

class EmbeddingWorker {
 public:
  using Vectors =
      std::vector<std::vector<float>>;  // of each text [width], or with Pooling::none [tokens, width]; not normalized
  struct Work {
    std::vector<std::vector<TokenId>> texts;  // each with 1 to context() tokens
    Pooling pooling = Pooling::last;
    WorkShare share;
    std::shared_ptr<std::atomic<bool>> unwanted;  // nobody waits for it any more
    std::function<void(Result<Vectors>)> done;    // on the worker's thread
  };

  EmbeddingWorker(std::shared_ptr<const LanguageModel> model, const EngineOptions& engine, int64_t context,
                  std::optional<Pooling> pooling);
  ~EmbeddingWorker();

  // What texts are pooled by where a request does not say. Errors: as model_pooling.
  const Result<Pooling>& pooling() const { return pooling_; }
  int64_t context() const { return context_; }
  int64_t width() const;

  // Errors: resource (too many wait), user (more values than an answer may have).
  Result<void> add(Work work);

 private:
  struct Job;
  bool run(Job& job, size_t piece);
  Result<void> embed(Job& job, size_t piece);

  std::shared_ptr<const LanguageModel> model_;
  EngineOptions engine_;
  int64_t context_;
  Result<Pooling> pooling_;
  std::unique_ptr<Embedder> embedder_;  // the thread's; null until it is needed
  FairWorker thread_;                   // last: it uses the others
};

}  // namespace millrace
