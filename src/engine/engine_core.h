// EngineCore: intake, plan, forward, choose, commit, emit; one step at a time, on one thread. Engine (engine.cc) wraps
// it in a thread; tests step it by hand; a simulation steps it with another executor on a virtual clock. Not
// thread-safe.
//
//   engine_core.cc    requests, the step, tokens          engine_places.cc   who holds which blocks: admission,
//   preemption,
//                                                                            swap, sharing among a request's answers
//   engine_beams.cc   beam search                          engine_prefix.cc   the prefix index
//   engine_store.cc   the prefix store: what leaves the prefix index for the disk, and what comes back
//   engine_snapshot.cc    what somebody who watches is told
#pragma once

#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/answer_group.h"
#include "engine/beam_search.h"
#include "engine/prefix_scopes.h"
#include "engine/snapshot_recorder.h"
#include "flow/step_plan.h"
#include "kv/pool.h"
#include "kv/prefix_index.h"
#include "millrace/engine.h"
#include "millrace/snapshot.h"
#include "run/executor.h"
#include "run/live_stream.h"
#include "schedule/planner.h"

namespace millrace {

class EngineCore {
 public:
  ~EngineCore();  // what the prefix index holds goes to the prefix store, if there is one
  // `clock` must outlive the core; null: the machine's.
  static Result<std::unique_ptr<EngineCore>> create(std::shared_ptr<const LanguageModel> model,
                                                    const EngineOptions& options, const Clock* clock = nullptr);
  // The same loop over any executor, whose memory and limits are its own, and any policy; null: the one that the
  // options name.
  static Result<std::unique_ptr<EngineCore>> create(std::unique_ptr<Executor> executor, const EngineOptions& options,
                                                    const Clock* clock = nullptr,
                                                    std::unique_ptr<SchedulerPolicy> policy = nullptr);

  // What submit() would refuse. Const after construction, so any thread may ask.
  Result<void> check(const Request& request) const;

  // Queues a request that check() accepts, with all its answers or not at all. Ids ascend and stay below 2^48. Errors:
  // resource (the queue is full, or the policy refuses). `submitted_ns`: since when it waits, by the core's clock; 0:
  // since now.
  Result<void> add(RequestId id, Request request, int64_t submitted_ns = 0);
  void cancel(RequestId id);  // takes effect in the next step, which frees all that it held
  bool idle() const { return streams_.empty(); }

  // Runs one step and appends what it has to tell. Returns the plan that was run.
  const StepPlan& step(std::vector<TokenEvent>& events);
  // The same with a plan that was recorded, of an engine with the same requests. Errors: user, when the plan does not
  // fit the streams as they stand; what of it came before took place.
  Result<void> replay(const StepPlan& plan, std::vector<TokenEvent>& events);

  EngineStats stats() const;
  const Planner& planner() const { return *planner_; }
  // What there is to see now, and since the last snapshot. Recording begins with the first one, and ends when none
  // comes.
  EngineSnapshot snapshot();
  // Of the request's prompt, what its prefix index holds now; what a router wants to know.
  int64_t cached_tokens(const Request& request);
  int64_t context() const { return executor_->limits().context; }
  const KvPool& kv() const { return *kv_; }
  const Executor& executor() const { return *executor_; }
  // free + held == total, and every held block is held by streams or the prefix index as often as it is counted; what
  // two streams hold, both know to be shared.
  Result<void> check_blocks() const;
  // Logits of the last step's sampled chunks, in plan order; for tests of bit equality.
  const float* last_logits() const { return executor_->logits(); }

 private:
  using StreamPtr = std::unique_ptr<LiveStream>;

  EngineCore() = default;
  int64_t longest(const Request& request) const;  // prompt and answer, tokens
  Result<StreamPtr> make_stream(RequestId id, Request request);
  Result<void> accept(const LiveStream& stream);
  void take_in(StreamPtr stream);
  RequestTimings timings(const Sequence& stream, int64_t generated) const;
  LiveStream* find(RequestId stream);
  ScheduleView make_view();
  Result<void> check_chunks(const StepPlan& plan) const;
  void begin_step(std::vector<TokenEvent>& events);
  void run_chunks(std::vector<TokenEvent>& events);
  void sample_chunks(std::vector<TokenEvent>& events);
  bool commit_token(LiveStream& stream, int64_t row, std::vector<TokenEvent>& events);
  void finish(LiveStream& stream, FinishReason reason, TokenEvent event, std::vector<TokenEvent>& events);
  void drop_ended(std::vector<TokenEvent>& events);
  void tell(ScheduleEvent::Kind kind, const Sequence& stream) { planner_->observe({kind, &stream}); }

  // engine_beams.cc
  Result<void> add_beams(RequestId id, Request request);
  void admit_beams(BeamGroup& group);
  bool commit_beam(LiveStream& stream, int64_t row, std::vector<TokenEvent>& events);
  void promise_blocks(BeamGroup& group);
  void fork_beams(BeamGroup& group, const std::vector<BeamSearch::Next>& next);
  void fork(LiveStream& parent, LiveStream& child);
  void finish_beams(BeamGroup& group, FinishReason reason, std::vector<TokenEvent>& events);

  // engine_prefix.cc
  void store_prefix(const LiveStream& stream);
  void find_prefix(LiveStream& stream);
  bool wait_for_prefix(LiveStream& stream);
  void end_wait(LiveStream& stream, bool again);
  void end_waits();

  // engine_places.cc
  void hold(BlockId block);
  void let_go(LiveStream& stream);
  void release(LiveStream& stream);
  bool reserve_blocks(LiveStream& stream, int64_t tokens);
  void mark_answers();
  bool admit(RequestId id);
  bool share_prompt(LiveStream& stream);
  void share_blocks(Sequence& owner, LiveStream& stream, int64_t tokens);
  void load_swapped(LiveStream& stream);
  void compute_again(Sequence& s);
  bool preempt(const PlannedPreemption& preemption);
  void enqueue(StreamPtr stream);
  void poll_tier();
  void forget(LiveStream& stream);

  // engine_store.cc
  Result<void> open_store(const EngineOptions& options);
  std::function<void(const ChainLink&, BlockId)> store_hook();
  void load_stored(LiveStream& stream);
  void mend_gap(LiveStream& stream, std::span<const ChainLink> behind, int64_t first, int64_t found);
  void mend_store(LiveStream& stream);
  std::vector<size_t> choose_stored(const LiveStream& stream, std::span<const ChainLink> found) const;
  void take_importance(LiveStream& stream, std::span<const ChainLink> blocks) const;
  bool may_join(const LiveStream& stream, int64_t layers) const;
  void join_loads();
  void part_loads();
  bool end_load(LiveStream& stream, const LoadProgress& progress);
  bool end_partial_load(LiveStream& stream, const LoadProgress& progress);
  bool end_joined(LiveStream& stream);
  void abandon_load(LiveStream& stream);
  void poll_store();
  void finish_loads();
  KvStoreStats store_stats() const;

  // engine_snapshot.cc
  void add_cells(const std::vector<const Sequence*>& shown, EngineSnapshot& snapshot) const;

  std::unique_ptr<Executor> executor_;
  KvPool* kv_ = nullptr;      // the executor's
  SteadyClock steady_clock_;  // outlives the prefix index, which reads it to the end
  const Clock* clock_ = nullptr;
  std::unique_ptr<PrefixStore> store_;   // null: what leaves the prefix index is lost; outlives the index
  std::unique_ptr<PrefixIndex> prefix_;  // null: switched off
  PrefixScopes scopes_;
  std::unique_ptr<KvTier> tier_;  // null: who gives way is computed again
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<CostModel> own_cost_;  // null: the executor's counts
  CostModel* cost_ = nullptr;
  PlannerLimits limits_;
  int64_t queue_limit_ = 0;

  std::unordered_map<RequestId, LiveStream*> streams_;  // by stream id, of all three lists
  std::deque<StreamPtr> waiting_;                       // in order of arrival
  std::vector<StreamPtr> running_;                      // in order of admission
  std::vector<StreamPtr> leaving_;                      // being swapped out
  std::vector<const Sequence*> waiting_view_, running_view_;
  std::vector<int32_t> holders_;  // of each block, streams
  int64_t held_blocks_ = 0;       // that have at least one
  int64_t next_arrival_ = 1;
  int64_t answers_waiting_ = 0, limited_ = 0;  // streams in the queue with a parent; streams with a time limit
  double store_fetch_ = 1;                     // of what is found in the store, so much is fetched
  int64_t loads_ = 0;                          // streams whose blocks are on their way from the store
  bool joins_early_ = false;                   // streams may run while their last layers are on their way
  bool closing_ = false;
  int64_t closing_skips_ = 0;  // blocks that would only be written to be displaced
  bool cancelled_ = false;     // somebody was, since the last step
  int64_t submitted_ns_ = 0;   // of the request that is being added; 0: now

  StepPlan plan_;
  std::vector<StepWork> work_;
  EngineStats stats_;
  std::ofstream record_;
  std::unique_ptr<SnapshotRecorder> recorder_;  // null: nobody watches
};

}  // namespace millrace
