// EngineCore: the engine's loop: queue, plan, admit and preempt, run, emit; one step at a time, on one thread. Engine
// (engine.cc) wraps it in a thread, tests step it by hand, and a simulation steps it with another executor on a virtual
// clock. Not thread-safe.
//
//   stream_lists    all open streams: waiting, running, leaving      store_loads   blocks from the prefix store
//   block_ledger    which streams hold which blocks                  swap          preempted streams in other memory
//   prefix_cache    prefix index, scopes, prefix store               beam_driver   beam search
//   prefix_service  prefixes for admitted streams                    draft_driver  drafted tokens
//   admission       queue -> running -> queue                        step_runner   batch, sampling, events
//   stream_closer   the end of a stream                              mask_worker   masks that steps have no time for
#pragma once

#include <memory>
#include <vector>

#include "engine/admission.h"
#include "engine/beam_driver.h"
#include "engine/block_ledger.h"
#include "engine/draft_driver.h"
#include "engine/loop_context.h"
#include "engine/mask_worker.h"
#include "engine/prefix_cache.h"
#include "engine/prefix_files.h"
#include "engine/prefix_service.h"
#include "engine/prepared_request.h"
#include "engine/snapshot_recorder.h"
#include "engine/state_copies.h"
#include "engine/step_runner.h"
#include "engine/store_loads.h"
#include "engine/stream_closer.h"
#include "engine/stream_lists.h"
#include "engine/swap.h"

namespace millrace {

class EngineCore {
 public:
  // `clock` must outlive the core; null: the machine's.
  static Result<std::unique_ptr<EngineCore>> create(std::shared_ptr<const LanguageModel> model,
                                                    const EngineOptions& options, const Clock* clock = nullptr);
  // A loop over any executor, which has its own memory and limits. `plan` is the one that the executor was made
  // from.
  static Result<std::unique_ptr<EngineCore>> create(std::unique_ptr<Executor> executor, EnginePlan plan,
                                                    const Clock* clock = nullptr);
  // Variant with a plan of its own, for executors that have none, and any policy and drafter; null: those that the
  // options name.
  static Result<std::unique_ptr<EngineCore>> create(std::unique_ptr<Executor> executor, const EngineOptions& options,
                                                    const Clock* clock = nullptr,
                                                    std::unique_ptr<SchedulerPolicy> policy = nullptr,
                                                    std::unique_ptr<Drafter> drafter = nullptr);

  // Finds the requests that add() refuses at any time. Const after construction, so any thread may call it. Errors:
  // user, unsupported, resource.
  Result<void> check(const Request& request) const;
  // Constructs what the request names, does with its documents what its context does before they are computed, and
  // checks the result. Const, as check(). Errors: those of check().
  Result<PreparedRequest> prepare(Request request) const;
  // Queues a prepared request, with all its answers or not at all. Ids ascend and stay below 2^48. Errors: resource
  // (the queue is full, or the policy refuses). `submitted_ns`: since when it waits, by the core's clock; 0: since now.
  Result<void> add(RequestId id, PreparedRequest prepared, int64_t submitted_ns = 0);
  // Prepares the request first.
  Result<void> add(RequestId id, Request request, int64_t submitted_ns = 0);
  void cancel(RequestId id);                   // takes effect in the next step, which releases all that it holds
  void raise(RequestId id, int64_t priority);  // if that is higher than the request's own
  bool idle() const { return lists_.table().empty(); }

  // Runs one step and appends its events. Returns the plan that was run.
  const StepPlan& step(std::vector<TokenEvent>& events);
  // step() with a recorded plan of an engine with the same requests. Errors: user, when the plan does not fit the
  // streams; the part of it before the misfit has been carried out.
  Result<void> replay(const StepPlan& plan, std::vector<TokenEvent>& events);

  EngineStats stats() const;
  const Planner& planner() const { return *loop_->planner; }
  // The present state, and what happened since the last snapshot. Recording begins with the first snapshot, and ends
  // when no further one is taken.
  EngineSnapshot snapshot();
  // Writes the prompt's blocks in the prefix cache to a file, or reads them from it (prefix_files.h). Both return the
  // number of tokens.
  Result<int64_t> save_prefix(const Request& request, const std::string& path) {
    return millrace::save_prefix(*loop_, *cache_, request, path);
  }
  Result<int64_t> load_prefix(const Request& request, const std::string& path) {
    return millrace::load_prefix(*loop_, *cache_, request, path);
  }
  // Number of the prompt's tokens that the prefix index has now; for routers.
  int64_t cached_tokens(const Request& request) {
    const auto gate = loop_->exit_gate(request);
    return gate.ok() ? cache_->cached_tokens(request, loop_->stored_layers(gate->get())) : 0;
  }
  int64_t context() const { return loop_->context(); }
  const PlannerLimits& limits() const { return loop_->limits; }
  const KvPool& kv() const { return loop_->kv(); }
  const Executor& executor() const { return *loop_->executor; }
  // true: the last step computed or copied documents, in addition to its plan.
  bool worked() const { return runner_.waits(); }
  // Errors: internal, where the block accounts are wrong (BlockLedger::check()).
  Result<void> check_blocks() const {
    if (const DocumentPlacer* placer = loop_->executor->documents()) MILLRACE_TRY_VOID(placer->check_blocks());
    return ledger_.check(lists_.table());
  }
  // Logits of the last step's sampled chunks, in plan order; for tests of bit equality.
  const float* last_logits() const { return loop_->executor->logits(); }

 private:
  EngineCore(std::unique_ptr<LoopContext> loop, std::unique_ptr<PrefixCache> cache, std::unique_ptr<KvTier> tier,
             DraftDriver drafts, const EngineOptions& options);
  Result<void> link_documents(PreparedRequest& prepared, const std::string& name, Facts& facts) const;
  ScheduleView view();
  void begin_step(std::vector<TokenEvent>& events, bool replayed = false);
  bool admit(RequestId stream);
  void hold_back(std::vector<TokenEvent>& events);

  std::unique_ptr<LoopContext> loop_;
  std::unique_ptr<PrefixCache> cache_;
  StreamLists lists_;
  SnapshotRecorder recorder_;
  BlockLedger ledger_;
  StoreLoads loads_;
  StateCopies states_;
  PrefixService prefixes_;
  Swap swap_;
  StreamCloser closer_;
  BeamDriver beams_;
  DraftDriver drafts_;
  Admission admission_;
  StepRunner runner_;
  int64_t queue_limit_;
  MaskWorker masks_;
  std::vector<const Sequence*> waiting_, running_;  // as the planner sees them
  StepPlan plan_;
};

}  // namespace millrace
