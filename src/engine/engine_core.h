// EngineCore: intake, plan, batch, forward, sample, commit, emit; one step at a time, on one thread. Engine
// (engine.cc) wraps it in a thread; tests and simulations step it by hand. Not thread-safe.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "engine/live_stream.h"
#include "flow/batch.h"
#include "flow/step_plan.h"
#include "kv/pool.h"
#include "kv/prefix_index.h"
#include "millrace/engine.h"
#include "models/forward_context.h"
#include "schedule/planner.h"

namespace millrace {

class EngineCore {
 public:
  // `clock` must outlive the core; null: the machine's.
  static Result<std::unique_ptr<EngineCore>> create(std::shared_ptr<const LanguageModel> model, const EngineOptions& options,
                                                    const Clock* clock = nullptr);

  // What submit() would refuse. Const after construction, so any thread may ask.
  Result<void> check(const Request& request) const;

  // Queues a request that check() accepts.
  Result<void> add(RequestId id, Request request);
  void cancel(RequestId id);  // takes effect in the next step
  bool idle() const { return waiting_.empty() && running_.empty(); }

  // Runs one step and appends what it has to tell. Returns the plan that was run.
  const StepPlan& step(std::vector<TokenEvent>& events);

  EngineStats stats() const;
  int64_t context() const { return context_length_; }
  const KvPool& kv() const { return *kv_; }
  // free + held == total, and every held block is held by a stream or the prefix index as often as it is counted.
  Result<void> check_blocks() const;
  // Logits of the last step's sampled chunks, in plan order; for tests of bit equality.
  const float* last_logits() const { return context_->logits(); }

 private:
  EngineCore() = default;
  Result<void> size_memory(const EngineOptions& options);
  Result<std::unique_ptr<LiveStream>> make_stream(RequestId id, Request request) const;
  void drop_cancelled(std::vector<TokenEvent>& events);
  void admit(std::vector<TokenEvent>& events);
  void reserve_blocks(LiveStream& stream, int64_t tokens);
  void build_batch();
  void sample_chunks(std::vector<TokenEvent>& events);
  bool commit_token(LiveStream& stream, std::span<float> logits, std::vector<TokenEvent>& events);
  void finish(LiveStream& stream, FinishReason reason, TokenEvent event, std::vector<TokenEvent>& events);
  void release(LiveStream& stream);
  LiveStream* find(RequestId id);

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<KvPool> kv_;
  std::unique_ptr<PrefixIndex> prefix_;  // null: switched off
  std::unique_ptr<ForwardContext> context_;
  SteadyClock steady_clock_;
  const Clock* clock_ = nullptr;
  PlannerLimits limits_;
  int64_t context_length_ = 0;
  int64_t queue_limit_ = 0;
  std::deque<std::unique_ptr<LiveStream>> waiting_;
  std::vector<std::unique_ptr<LiveStream>> running_;  // in order of admission
  std::vector<const Sequence*> view_;
  StepPlan plan_;
  Batch batch_;
  SamplingRow row_;
  std::vector<float> raw_logits_;
  EngineStats stats_;
};

}  // namespace millrace
