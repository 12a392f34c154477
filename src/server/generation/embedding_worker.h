// EmbeddingWorker: embeds texts on its own thread alongside the engine. Its memory is allocated with the first request
// and sized for the longest text so far. A request with many texts is embedded one batch at a time, interleaved with
// other requests (fair_worker.h); this does not affect its vectors. Thread-safe.
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
  // For each text [width], or with Pooling::none [tokens, width]; not normalized.
  using Vectors = std::vector<std::vector<float>>;
  struct Work {
    std::vector<std::vector<TokenId>> texts;  // each with 1 to context() tokens
    Pooling pooling = Pooling::last;
    WorkShare share;
    std::shared_ptr<std::atomic<bool>> unwanted;  // set when the client has left
    std::function<void(Result<Vectors>)> done;    // on the worker's thread
  };

  EmbeddingWorker(std::shared_ptr<const LanguageModel> model, const EngineOptions& engine, int64_t context,
                  std::optional<Pooling> pooling);
  ~EmbeddingWorker();

  // The default pooling. Errors: as model_pooling.
  const Result<Pooling>& pooling() const { return pooling_; }
  int64_t context() const { return context_; }
  int64_t width() const;

  // Errors: resource (the queue is full), user (more values than one response may have).
  Result<void> add(Work work);

 private:
  struct Job;
  bool run(Job& job, size_t piece);
  Result<void> embed(Job& job, size_t piece);

  std::shared_ptr<const LanguageModel> model_;
  EngineOptions engine_;
  int64_t context_;
  Result<Pooling> pooling_;
  std::unique_ptr<Embedder> embedder_;  // used by the thread; null until needed
  FairWorker thread_;                   // last: it uses the others
};

}  // namespace millrace
