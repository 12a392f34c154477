#include "engine/engine_core.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/make_streams.h"
#include "engine/request_check.h"
#include "engine/snapshot.h"
#include "run/compatibility/collect.h"
#include "run/compatibility/rules.h"
#include "run/executors/cpu_executor.h"
#include "run/language_model.h"

namespace millrace {
namespace {

Result<void> set_cost_model(LoopContext& loop, const EngineOptions& options) {
  loop.cost = loop.executor->cost();
  if (loop.cost) return {};
  if (options.cost_model.empty()) {
    loop.own_cost = make_learned_cost();
  } else {
    MILLRACE_TRY(loop.own_cost, load_cost_model(options.cost_model));
  }
  loop.cost = loop.own_cost.get();
  return {};
}

PlannerLimits planner_limits(const Executor& executor, const KvPool& pool, const EngineOptions& options) {
  const ExecutorLimits& limits = executor.limits();
  return {limits.tokens,
          limits.outputs,
          options.max_streams,
          pool.total_blocks(),
          pool.layout().block_tokens,
          options.resident_streams,
          limits.context,
          pool.layout().most_held,
          pool.layout().tables(),
          pool.layout().tables_per_layer() > 1,
          limits.whole_prompts};
}

}  // namespace

Result<std::unique_ptr<EngineCore>> EngineCore::create(std::shared_ptr<const LanguageModel> model,
                                                       const EngineOptions& options, const Clock* clock) {
  MILLRACE_TRY_VOID(check_options(options));
  MILLRACE_TRY(EnginePlan plan, EnginePlan::create(options, *model));
  MILLRACE_TRY(auto executor, CpuExecutor::create(std::move(model), plan));
  return create(std::move(executor), std::move(plan), clock);
}

Result<std::unique_ptr<EngineCore>> EngineCore::create(std::unique_ptr<Executor> executor, const EngineOptions& options,
                                                       const Clock* clock, std::unique_ptr<SchedulerPolicy> policy,
                                                       std::unique_ptr<Drafter> drafter) {
  MILLRACE_TRY_VOID(check_options(options));
  MILLRACE_TRY(EnginePlan plan, EnginePlan::create(options, make_kernel_table(Isa::ref)));
  if (policy) plan.policy = std::move(policy);
  if (drafter) plan.drafter = std::move(drafter);
  return create(std::move(executor), std::move(plan), clock);
}

Result<std::unique_ptr<EngineCore>> EngineCore::create(std::unique_ptr<Executor> executor, EnginePlan plan,
                                                       const Clock* clock) {
  const EngineOptions& options = plan.options;
  MILLRACE_TRY_VOID(check_options(options));
  auto loop = std::make_unique<LoopContext>();
  loop->planner = std::make_unique<Planner>(std::move(plan.policy));
  loop->executor = std::move(executor);
  loop->clock = clock ? clock : &loop->steady_clock;
  loop->limits = planner_limits(*loop->executor, loop->kv(), options);
  loop->facts = loop->executor->facts();
  if (plan.drafter) add_drafter(*plan.drafter, options.drafter, loop->facts);
  MILLRACE_TRY_VOID(resolve_engine(plan, loop->facts));
  MILLRACE_TRY(DraftDriver drafts, DraftDriver::create(plan));
  MILLRACE_TRY_VOID(drafts.attach(*loop));
  MILLRACE_TRY_VOID(set_cost_model(*loop, options));
  loop->evictor = plan.evictor;
  loop->exit = plan.switches.exit;
  MILLRACE_TRY_VOID(loop->exit_gate({}));
  loop->documents = plan.documents;
  loop->documents_name = options.document_context;
  if (loop->evictor) MILLRACE_TRY_VOID(check_budgets(*loop->evictor, loop->executor->limits()));
  MILLRACE_TRY(auto cache, PrefixCache::create(*loop, plan));
  std::unique_ptr<KvTier> tier;
  if (plan.tier) {
    MILLRACE_TRY(tier, loop->executor->home().make_swap(*plan.tier));
  }
  auto core = std::unique_ptr<EngineCore>(
      new EngineCore(std::move(loop), std::move(cache), std::move(tier), std::move(drafts), options));
  if (!options.record_plans.empty()) MILLRACE_TRY_VOID(core->runner_.record_plans(options.record_plans));
  return core;
}

EngineCore::EngineCore(std::unique_ptr<LoopContext> loop, std::unique_ptr<PrefixCache> cache,
                       std::unique_ptr<KvTier> tier, DraftDriver drafts, const EngineOptions& options)
    : loop_(std::move(loop)),
      cache_(std::move(cache)),
      ledger_(loop_->kv(), cache_->index()),
      loads_(*loop_, lists_, ledger_, *cache_, states_, cache_->fetched_fraction()),
      states_(loop_->kv(), *cache_),
      prefixes_(lists_, ledger_, *cache_, loads_, states_),
      swap_(*loop_, lists_, ledger_, std::move(tier)),
      closer_(*loop_, lists_, prefixes_, loads_, swap_, recorder_),
      beams_(*loop_, lists_, ledger_, closer_),
      drafts_(std::move(drafts)),
      admission_(*loop_, lists_, ledger_, prefixes_, loads_, swap_, states_),
      runner_(*loop_, lists_, ledger_, admission_, loads_, closer_, beams_, drafts_, recorder_, *cache_, states_),
      queue_limit_(options.queue) {}

Result<void> EngineCore::check(const Request& request) const {
  if (!request.documents.empty()) {
    MILLRACE_TRY_VOID(prepare(request));
    return {};
  }
  MILLRACE_TRY(const PreparedRequest members, name_members(*loop_, request));
  Facts facts = loop_->facts;
  add_exit(members.exit.get(), facts);
  return check_request(request, *loop_->executor, loop_->limits, std::move(facts), members.evictor.get());
}

// Takes the documents that an encoder reads out of the request, or adds the links between others. Without a context
// nothing happens.
Result<void> EngineCore::link_documents(PreparedRequest& prepared, const std::string& name, Facts& facts) const {
  const DocumentContext* context = prepared.context.get();
  Request& request = prepared.request;
  if (!context) return {};
  if (context->encoder()) {
    add_encoded(name, facts);
    MILLRACE_TRY_VOID(check_encoded(request, *context->encoder(), loop_->documents.get()));
    prepared.encoded = take_documents(request);
    MILLRACE_TRY(const DocumentPlacer* placer, find_placer(*loop_->executor));
    return placer->check_encoded(prepared.encoded);
  }
  add_apart(request, name, facts);
  MILLRACE_TRY_VOID(resolve(facts));
  add_links(*context, request);
  if (!context->link_rows()) return {};
  MILLRACE_TRY(const DocumentPlacer* placer, find_placer(*loop_->executor));
  return placer->put_links(*context->link_rows(), request);
}

Result<PreparedRequest> EngineCore::prepare(Request request) const {
  MILLRACE_TRY(PreparedRequest prepared, name_members(*loop_, request));
  prepared.request = std::move(request);
  const std::string name =
      prepared.request.document_context.empty() ? loop_->documents_name : prepared.request.document_context;
  Facts facts = loop_->facts;
  MILLRACE_TRY_VOID(link_documents(prepared, name, facts));
  add_exit(prepared.exit.get(), facts);
  if (prepared.evictor && prepared.apart()) {
    auto joining = std::make_shared<EvictionRule>(*prepared.evictor);
    joining->joined = prepared.request.documents.back().end;
    prepared.evictor = std::move(joining);
  }
  const EvictionRule* rule = prepared.evictor.get();
  MILLRACE_TRY_VOID(check_request(prepared.request, *loop_->executor, loop_->limits, facts, rule));
  if (!prepared.apart()) return prepared;
  prepared.plan = prepared.context->plan(prepared.request.documents);
  add_parts(prepared.plan, name, facts);
  if (rule) add_evictor(*rule, facts);
  MILLRACE_TRY_VOID(resolve(facts));
  MILLRACE_TRY(const DocumentPlacer* placer, find_placer(*loop_->executor));
  MILLRACE_TRY_VOID(placer->check_parts(prepared.plan));
  return prepared;
}

Result<void> EngineCore::add(RequestId id, Request request, int64_t submitted_ns) {
  MILLRACE_TRY(PreparedRequest prepared, prepare(std::move(request)));
  return add(id, std::move(prepared), submitted_ns);
}

Result<void> EngineCore::add(RequestId id, PreparedRequest prepared, int64_t submitted_ns) {
  const int64_t waiting = std::ssize(lists_.waiting());
  if (waiting >= queue_limit_ && std::ssize(lists_.running()) >= loop_->limits.max_streams)
    return Error::resource(fmt::format("queue: {} requests are waiting already; try again later", waiting));
  DocumentTokens encoded = std::move(prepared.encoded);
  MILLRACE_TRY(auto streams, make_streams(*loop_, *cache_, id, std::move(prepared), submitted_ns));
  MILLRACE_TRY_VOID(loop_->planner->policy().accept(streams.front()->sequence, view()));
  if (!encoded.empty()) {
    const auto shared = std::make_shared<const DocumentTokens>(std::move(encoded));
    for (StreamPtr& stream : streams) {
      stream->encoded = shared;
      stream->sequence.prefix.caches = false;  // its keys and values are of these documents, too
    }
  }
  for (StreamPtr& stream : streams) {
    const Sequence& s = stream->sequence;
    lists_.add(std::move(stream));
    loop_->observe(ScheduleEvent::Kind::queued, s);
  }
  return {};
}

void EngineCore::cancel(RequestId id) { lists_.cancel(id); }

void EngineCore::raise(RequestId id, int64_t priority) {
  for (const auto& [stream, live] : lists_.table())
    if (request_of(stream) == id) live->sequence.request.priority = std::max(live->sequence.request.priority, priority);
}

ScheduleView EngineCore::view() {
  admission_.mark_answers();
  waiting_.clear();
  running_.clear();
  for (const auto& stream : lists_.waiting()) waiting_.push_back(&stream->sequence);
  for (const auto& stream : lists_.running()) running_.push_back(&stream->sequence);
  int64_t leaving = 0;
  for (const auto& stream : lists_.leaving()) leaving += stream->sequence.kv.own_blocks();
  return {.waiting = waiting_,
          .running = running_,
          .now_ns = loop_->now(),
          .free_blocks = ledger_.unheld_blocks(),
          .leaving_blocks = leaving,
          .swap_tokens_free = swap_.free_tokens(),
          .limits = loop_->limits,
          .cost = loop_->cost};
}

void EngineCore::begin_step(std::vector<TokenEvent>& events, bool replayed) {
  plan_.clear();
  runner_.end_cancelled(events);
  swap_.poll();
  loads_.poll();
  prefixes_.end_waits();
  if (loop_->executor->take_loss()) runner_.end_stored(events);
  runner_.begin_step(replayed);
}

bool EngineCore::admit(RequestId id) {
  LiveStream* stream = admission_.admit(id);
  if (stream && stream->beams) beams_.admit(*stream->beams);
  if (stream) runner_.admitted(*stream);
  return stream != nullptr;
}

// Streams whose masks are not ready sit out the step.
void EngineCore::hold_back(std::vector<TokenEvent>& events) {
  const auto& over = masks_.hold_back(lists_);
  for (LiveStream* stream : over) {
    TokenEvent event;
    const bool failed = MaskWorker::out_of_memory(*stream);
    if (failed) event.error = Error::resource("constraint: out of memory while computing the allowed tokens");
    const FinishReason reason = stream->own.sampler->ended() ? FinishReason::stop : FinishReason::length;
    closer_.finish(*stream, failed ? FinishReason::error : reason, std::move(event), events);
  }
  if (!over.empty()) lists_.erase_ended_running();
}

const StepPlan& EngineCore::step(std::vector<TokenEvent>& events) {
  const size_t events_before = events.size();
  begin_step(events);
  loop_->planner->plan_places(view(), plan_);
  for (const PlannedPreemption& preemption : plan_.preempted) admission_.preempt(preemption);
  for (RequestId id : plan_.admitted) admit(id);
  loads_.join();
  hold_back(events);
  drafts_.propose(lists_);
  loop_->planner->plan_chunks(view(), plan_);
  for (const PlannedPreemption& preemption : plan_.preempted_for_blocks) admission_.preempt(preemption);
  runner_.run(plan_, events);
  loads_.part();
  const bool moves = runner_.waits() || masks_.any() || !lists_.leaving().empty() ||
                     std::ranges::any_of(lists_.running(), [](const StreamPtr& stream) {
                       const StreamPhase phase = stream->sequence.phase;
                       return phase == StreamPhase::loading || phase == StreamPhase::looking_up;
                     });
  loop_->planner->observe_step(runner_.ran(), moves);
  if (plan_.empty() && loads_.any() && events.empty()) loads_.wait();
  if (masks_.any() && !runner_.ran() && events.size() == events_before) masks_.wait();
  return plan_;
}

Result<void> EngineCore::replay(const StepPlan& plan, std::vector<TokenEvent>& events) {
  const Error misfit = Error::user(fmt::format("step plan: does not fit the streams: {}", plan.to_string()));
  const auto preempt = [this](const PlannedPreemption& preemption) { return admission_.preempt(preemption); };
  begin_step(events, true);
  admission_.mark_answers();
  if (!std::ranges::all_of(plan.preempted, preempt)) return misfit;
  if (!std::ranges::all_of(plan.admitted, [this](RequestId id) { return admit(id); })) return misfit;
  loads_.finish_all();  // how far they were when the plan was made is not known
  if (!std::ranges::all_of(plan.preempted_for_blocks, preempt)) return misfit;
  drafts_.propose_whole(lists_);
  plan_ = plan;
  if (!runner_.fits(plan)) return misfit;
  runner_.run(plan_, events, true);
  return plan_ == plan ? Result<void>() : misfit;  // another stream was preempted because blocks were missing
}

EngineSnapshot EngineCore::snapshot() {
  EngineSnapshot snapshot = take_snapshot(*loop_, lists_, ledger_, recorder_);
  snapshot.swap_free_tokens = swap_.free_tokens();
  return snapshot;
}

EngineStats EngineCore::stats() const {
  EngineStats stats = loop_->stats;
  stats.running = std::ssize(lists_.running());
  stats.waiting = std::ssize(lists_.waiting()) + std::ssize(lists_.leaving());
  stats.waiting_for_masks = std::ranges::count_if(
      lists_.running(), [](const StreamPtr& stream) { return stream->late_mask && stream->sequence.held_back; });
  stats.kv_blocks = loop_->kv().total_blocks();
  stats.kv_blocks_free = loop_->kv().free_blocks();
  stats.kv_tables = loop_->kv().layout().tables();
  cache_->add_stats(stats);
  const StatePool& states = loop_->kv().states();
  stats.state_cache.slots = states.copies();
  stats.state_cache.slot_bytes = states.copies() > 0 ? states.slot_bytes() : 0;
  stats.states = states.slots() - states.copies();
  stats.states_free = states.free() - (states.copies() - stats.state_cache.held);
  stats.livelocks = loop_->planner->livelocks();
  stats.kv_bytes = loop_->kv().bytes();
  if (loop_->kv().layout().has_residuals()) {
    stats.attention_rows = loop_->kv().residual_reads().rows;
    stats.flat_rows = loop_->kv().residual_reads().flat;
  }
  stats.scratch_bytes = loop_->executor->limits().scratch_bytes;
  stats.store = loads_.stats();
  stats.key_stream = loop_->executor->home().key_stream();
  return stats;
}

}  // namespace millrace
