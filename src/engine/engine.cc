// Engine: EngineCore on a thread of its own. Requests and cancellations go in through one locked queue. Events come out
// through one queue per stream, which the request's max_tokens bounds, or go directly to the request's sink.
#include "millrace/engine.h"

#include "attention/workers/workers.h"
#include "base/start_thread.h"
#include "engine/engine_state.h"
#include "models/weight_source.h"
#include "run/adapter_registry.h"
#include "run/plan/memory_plan.h"

namespace millrace {

Stream::Stream(std::shared_ptr<State> state) : state_(std::move(state)) {}
Stream::~Stream() {
  bool ended;
  {
    std::lock_guard lock(state_->mutex);
    ended = state_->ended;
  }
  if (!ended) cancel();
}

RequestId Stream::id() const { return state_->id; }
void Stream::cancel() { state_->cancel(state_->id); }

std::optional<TokenEvent> Stream::next() {
  std::unique_lock lock(state_->mutex);
  if (state_->ended) return std::nullopt;
  state_->arrived.wait(lock, [&] { return !state_->events.empty(); });
  TokenEvent event = std::move(state_->events.front());
  state_->events.pop_front();
  state_->ended = event.last;
  return event;
}

std::optional<TokenEvent> Stream::next(std::chrono::milliseconds limit, bool* timed_out) {
  {
    std::unique_lock lock(state_->mutex);
    const bool ready = state_->ended || state_->arrived.wait_for(lock, limit, [&] { return !state_->events.empty(); });
    if (timed_out) *timed_out = !ready;
    if (!ready) return std::nullopt;
  }
  return next();
}

Engine::Engine() : state_(std::make_shared<State>()) {}

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<const LanguageModel> model,
                                               const EngineOptions& options) {
  auto engine = std::unique_ptr<Engine>(new Engine());
  MILLRACE_TRY(engine->state_->core, EngineCore::create(std::move(model), options));
  engine->state_->stats = engine->state_->core->stats();
  engine->state_->stream_limit = options.max_streams + options.queue;
  MILLRACE_TRY(engine->state_->thread, start_thread("engine", [state = engine->state_.get()] { state->loop(); }));
  return engine;
}

Engine::~Engine() {
  if (!state_->thread.joinable()) return;
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  state_->thread.join();
}

Result<std::unique_ptr<Stream>> Engine::submit(Request request) {
  auto stream = std::make_shared<Stream::State>();
  // A stream may outlive the engine; then there is nothing to cancel.
  stream->cancel = [weak = std::weak_ptr<State>(state_)](RequestId id) {
    if (auto state = weak.lock()) state->cancel(id);
  };
  if (auto id = state_->submit(std::move(request), stream); !id.ok()) return id.error();
  return std::unique_ptr<Stream>(new Stream(std::move(stream)));
}

Result<RequestId> Engine::submit(Request request, EventSink sink, std::shared_ptr<QueuePlace> place) {
  auto stream = std::make_shared<Stream::State>();
  stream->sink = std::move(sink);
  return state_->submit(std::move(request), stream, std::move(place));
}

Result<std::shared_ptr<QueuePlace>> Engine::take_place(int64_t tokens) { return state_->take_place(tokens); }

void Engine::raise(RequestId id, int64_t priority) { state_->raise(id, priority); }

void Engine::cancel(RequestId id) { state_->cancel(id); }

Result<void> Engine::check(const Request& request) const { return state_->core->check(request); }

Result<CompiledConstraint> Engine::compile(const Constraint& constraint, const CompileOrder& order) const {
  return state_->core->executor().chooser().compile(constraint, order);
}
std::optional<Result<CompiledConstraint>> Engine::compiled(const Constraint& constraint) const {
  return state_->core->executor().chooser().compiled(constraint);
}

Result<void> Engine::load_adapter(const std::string& name, const std::string& path) {
  return state_->core->executor().adapters()->load(name, path);
}
bool Engine::unload_adapter(const std::string& name) { return state_->core->executor().adapters()->unload(name); }
std::vector<AdapterInfo> Engine::adapters() const { return state_->core->executor().adapters()->list(); }

namespace {

WeightReadStats read_stats(const WeightSource& source) {
  const WeightFigures figures = source.figures().value_or(WeightFigures{});
  return {.bytes_read = figures.bytes_read,
          .hits = figures.hits,
          .misses = figures.misses,
          .wait_seconds = static_cast<double>(figures.wait_ns) * 1e-9,
          .prefetched = figures.prefetched,
          .prefetched_used = figures.prefetched_used,
          .failed = figures.failed,
          .experts = figures.experts,
          .cold_experts = figures.cold_experts,
          .kept_bytes = figures.kept_bytes,
          .cache_bytes = figures.cache_bytes};
}

AttentionWorkerStats worker_stats(const AttentionWorkers& workers) {
  const AttentionWorkerFigures figures = workers.figures();
  return {.workers = figures.workers,
          .starts = figures.starts,
          .bytes = figures.bytes,
          .sent_bytes = figures.sent_bytes,
          .received_bytes = figures.received_bytes,
          .wait_seconds = figures.wait_seconds};
}

}  // namespace

EngineStats Engine::stats() const {
  const MemoryAccounts* accounts = state_->core->executor().accounts();
  std::lock_guard lock(state_->mutex);
  EngineStats stats = state_->stats;
  if (accounts) {
    stats.memory_budget = accounts->budget();
    stats.memory = memory_uses(*accounts);
  }
  const Executor& executor = state_->core->executor();
  if (const WeightSource* weights = executor.weights()) stats.weights = read_stats(*weights);
  if (const AttentionWorkers* workers = executor.workers()) stats.attention_workers = worker_stats(*workers);
  return stats;
}

bool Engine::snapshot(SnapshotSink sink) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->stop || state_->snapshots.size() >= kMaxSnapshots) return false;
    state_->snapshots.push_back(std::move(sink));
  }
  state_->wake.notify_one();
  return true;
}

EngineLiveness Engine::liveness() const {
  EngineLiveness liveness;
  {
    std::lock_guard lock(state_->mutex);
    liveness.stopped = state_->stop;
  }
  if (const int64_t began = state_->step_began) {
    liveness.step_seconds = static_cast<double>(steady_ns() - began) * 1e-9;
  }
  return liveness;
}

Result<int64_t> Engine::save_prefix(const Request& request, const std::string& path) {
  return state_->between_steps([&](EngineCore& core) { return core.save_prefix(request, path); });
}
Result<int64_t> Engine::load_prefix(const Request& request, const std::string& path) {
  return state_->between_steps([&](EngineCore& core) { return core.load_prefix(request, path); });
}

int64_t Engine::context() const { return state_->core->context(); }
int64_t Engine::most_requests() const { return state_->stream_limit; }
int64_t Engine::longest_kept() const { return state_->core->limits().longest_kept(); }

}  // namespace millrace
