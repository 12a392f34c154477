// EmbeddingWorker: embeds texts in the engine's steps (prompt_reads.h); a thread waits for them. A request with many
// texts is embedded a batch at a time, interleaved with other requests (fair_worker.h); this does not affect its
// vectors. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "evaluate/pooling.h"
#include "evaluate/vector_head.h"
#include "millrace/model.h"
#include "prompt/task_prefixes.h"
#include "server/generation/fair_worker.h"

namespace millrace {

class Engine;
class QueuePlace;

class EmbeddingWorker {
 public:
  // For each text [width], or with Pooling::none [tokens, width]; not normalized. The model's dense layers have been
  // applied to pooled vectors.
  using Vectors = std::vector<std::vector<float>>;
  struct Work {
    std::vector<std::vector<TokenId>> texts;  // each with 1 to context() tokens
    Pooling pooling = Pooling::last;
    WorkShare share;
    std::shared_ptr<std::atomic<bool>> unwanted;  // set when the client has left
    std::function<void(Result<Vectors>)> done;    // on the worker's thread
    std::shared_ptr<QueuePlace> place = nullptr;  // taken by add()
  };

  // `engine` runs the model and outlives the worker; a batch has about `batch_tokens`.
  EmbeddingWorker(const LanguageModel& model, Engine& engine, int64_t batch_tokens, std::optional<Pooling> pooling);
  ~EmbeddingWorker();

  // The default pooling. Errors: as model_pooling.
  const Result<Pooling>& pooling() const { return pooling_; }
  // Prefixes of the model's files by task. Errors: as TaskPrefixes::read().
  const Result<TaskPrefixes>& prefixes() const { return prefixes_; }
  int64_t context() const { return context_; }
  // Values of one vector. Hidden states of single tokens do not pass the model's dense layers.
  int64_t width(Pooling pooling) const { return pooling != Pooling::none && head_.ok() ? head_->width() : width_; }

  // Takes a place in the engine's queue. Errors: resource (that queue or this one is full), user (more values than one
  // response may have).
  Result<void> add(Work work);

 private:
  struct Job;
  bool run(Job& job, size_t piece);
  Result<void> embed(Job& job, size_t piece);

  Engine& engine_;
  const int64_t batch_tokens_, context_, width_;
  Result<Pooling> pooling_;
  Result<VectorHead> head_;
  Result<TaskPrefixes> prefixes_;
  std::atomic<bool> stopping_ = false;
  FairWorker thread_;  // last: it uses the others
};

}  // namespace millrace
