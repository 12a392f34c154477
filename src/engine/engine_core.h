// EngineCore: intake, plan, forward, choose, commit, emit; one step at a time, on one thread. Engine (engine.cc) wraps
// it in a thread; tests step it by hand; a simulation steps it with another executor on a virtual clock. Not thread-safe.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/executor.h"
#include "engine/live_stream.h"
#include "flow/step_plan.h"
#include "kv/pool.h"
#include "kv/prefix_index.h"
#include "millrace/engine.h"
#include "schedule/planner.h"

namespace millrace {

class EngineCore {
 public:
  // `clock` must outlive the core; null: the machine's.
  static Result<std::unique_ptr<EngineCore>> create(std::shared_ptr<const LanguageModel> model, const EngineOptions& options,
                                                    const Clock* clock = nullptr);
  // The same loop over any executor, whose memory and limits are its own.
  static Result<std::unique_ptr<EngineCore>> create(std::unique_ptr<Executor> executor, const EngineOptions& options,
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
  int64_t context() const { return executor_->limits().context; }
  const KvPool& kv() const { return *kv_; }
  // free + held == total, and every held block is held by a stream or the prefix index as often as it is counted.
  Result<void> check_blocks() const;
  // Logits of the last step's sampled chunks, in plan order; for tests of bit equality.
  const float* last_logits() const { return executor_->logits(); }

 private:
  EngineCore() = default;
  int64_t longest(const Request& request) const;  // prompt and answer, tokens
  Result<std::unique_ptr<LiveStream>> make_stream(RequestId id, Request request) const;
  void drop_cancelled(std::vector<TokenEvent>& events);
  void admit(std::vector<TokenEvent>& events);
  void reserve_blocks(LiveStream& stream, int64_t tokens);
  void sample_chunks(std::vector<TokenEvent>& events);
  bool commit_token(LiveStream& stream, int64_t row, std::vector<TokenEvent>& events);
  void finish(LiveStream& stream, FinishReason reason, TokenEvent event, std::vector<TokenEvent>& events);
  void release(LiveStream& stream);
  LiveStream* find(RequestId id);

  std::unique_ptr<Executor> executor_;
  KvPool* kv_ = nullptr;                 // the executor's
  std::unique_ptr<PrefixIndex> prefix_;  // null: switched off
  SteadyClock steady_clock_;
  const Clock* clock_ = nullptr;
  PlannerLimits limits_;
  int64_t queue_limit_ = 0;
  std::deque<std::unique_ptr<LiveStream>> waiting_;
  std::vector<std::unique_ptr<LiveStream>> running_;  // in order of admission
  std::vector<const Sequence*> view_;
  StepPlan plan_;
  std::vector<StepWork> work_;
  EngineStats stats_;
};

}  // namespace millrace
