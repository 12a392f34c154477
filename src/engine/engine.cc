// Engine: EngineCore on a thread of its own. Requests and cancellations go in through one locked queue. Events come out
// through one queue per stream, which the request's max_tokens bounds, or go directly to the request's sink.
#include "millrace/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>

#include "base/start_thread.h"
#include "engine/engine_core.h"
#include "engine/request_check.h"
#include "run/adapter_registry.h"
#include "run/memory_plan.h"
#include "run/prompt_embeddings.h"

namespace millrace {
namespace {

int64_t steady_ns() { return SteadyClock().now_ns(); }

}  // namespace

// Counts as one open request, with its memory, from take_place() until its last copy is gone.
class QueuePlace {
 public:
  QueuePlace(int64_t bytes, std::function<void()> give_back) : memory(bytes), give_back_(std::move(give_back)) {}
  ~QueuePlace() { give_back_(); }
  QueuePlace(const QueuePlace&) = delete;
  QueuePlace& operator=(const QueuePlace&) = delete;

  const int64_t memory;
  bool taken = false;  // by an open request; guarded by the engine's mutex

 private:
  std::function<void()> give_back_;
};

struct Stream::State {
  RequestId id = 0;
  int64_t places = 1;  // counted for the request while it is open, as is its memory
  int64_t memory = 0;
  std::shared_ptr<QueuePlace> place;  // that the request has instead; null: none
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<TokenEvent> events;
  bool ended = false;  // the last event has been read
  std::function<void(RequestId)> cancel;
  Engine::EventSink sink;  // receives the events instead of the queue
};

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

struct Engine::State : std::enable_shared_from_this<Engine::State> {
  std::unique_ptr<EngineCore> core;  // used by the engine thread only, except check() and context()

  mutable std::mutex mutex;
  std::condition_variable wake;
  bool stop = false;
  RequestId next_id = 1;
  struct Submitted {
    std::shared_ptr<Stream::State> stream;
    Request request;
    CompiledConstraint compiled;  // held for the engine thread, which never compiles
    int64_t when_ns;              // when it was submitted; the rest of a running step counts as waiting time
  };
  std::vector<Submitted> submitted;
  std::vector<RequestId> cancelled;
  struct Raise {
    RequestId id;
    int64_t priority;
  };
  std::vector<Raise> raised;
  std::vector<Engine::SnapshotSink> snapshots;  // requested
  struct Task {
    std::function<Result<int64_t>(EngineCore&)> run;  // between two steps
    std::promise<Result<int64_t>> done;
  };
  std::vector<Task> tasks;
  EngineStats stats;
  int64_t open_streams = 0;
  int64_t stream_limit = 0;
  int64_t open_memory = 0;             // of the open requests
  std::atomic<int64_t> step_began{0};  // steady clock, ns; 0: between steps

  std::unordered_map<RequestId, std::shared_ptr<Stream::State>> streams;  // engine thread only
  std::thread thread;

  void deliver(TokenEvent event);
  void loop();
  void end_all(const Error& failure);
  void receive();
  void send_snapshots(bool stopped);
  void run_tasks(bool stopped);
  Result<int64_t> between_steps(std::function<Result<int64_t>(EngineCore&)> run);
  Result<RequestId> submit(Request request, const std::shared_ptr<Stream::State>& stream,
                           std::shared_ptr<QueuePlace> place = nullptr);
  Result<void> take_room(int64_t places, int64_t memory);
  Result<std::shared_ptr<QueuePlace>> take_place(int64_t tokens);
  void cancel(RequestId id);
  void raise(RequestId id, int64_t priority);
};

void Engine::State::deliver(TokenEvent event) {
  auto found = streams.find(event.request);
  if (found == streams.end()) return;
  const bool last = event.last;
  auto stream = found->second;
  std::shared_ptr<QueuePlace> place;  // given back without the mutex
  if (last) {
    streams.erase(found);
    std::lock_guard lock(mutex);
    open_streams -= stream->places;
    open_memory -= stream->memory;
    place.swap(stream->place);
    if (place) place->taken = false;
  }
  place.reset();
  if (stream->sink) {
    stream->sink(std::move(event));
    return;
  }
  std::lock_guard lock(stream->mutex);
  stream->events.push_back(std::move(event));
  stream->arrived.notify_one();
}

void Engine::State::receive() {
  std::vector<Submitted> requests;
  std::vector<RequestId> cancels;
  std::vector<Raise> raises;
  {
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] {
      return stop || !submitted.empty() || !cancelled.empty() || !snapshots.empty() || !tasks.empty() || !core->idle();
    });
    requests.swap(submitted);
    cancels.swap(cancelled);
    raises.swap(raised);
  }
  for (auto& [stream, request, compiled, when_ns] : requests) {
    const RequestId id = stream->id;
    streams[id] = std::move(stream);
    if (auto added = core->add(id, std::move(request), when_ns); !added.ok()) {
      TokenEvent event;
      event.request = id;
      event.finish = FinishReason::error;
      event.last = true;
      event.error = added.error();
      deliver(std::move(event));
    }
  }
  for (RequestId id : cancels) core->cancel(id);
  for (const Raise& one : raises) core->raise(one.id, one.priority);
}

// Answers every requested snapshot. One that does not fit in memory is empty, as are those after the engine stopped.
void Engine::State::send_snapshots(bool stopped) {
  std::vector<Engine::SnapshotSink> sinks;
  {
    std::lock_guard lock(mutex);
    sinks.swap(snapshots);
  }
  for (const Engine::SnapshotSink& sink : sinks) {
    EngineSnapshot snapshot;
    try {
      if (!stopped) snapshot = core->snapshot();
    } catch (const std::bad_alloc&) {
      snapshot = {};
    }
    snapshot.stopped = stopped;
    sink(std::move(snapshot));
  }
}

void Engine::State::run_tasks(bool stopped) {
  std::vector<Task> now;
  {
    std::lock_guard lock(mutex);
    now.swap(tasks);
  }
  for (Task& task : now) {
    try {
      task.done.set_value(stopped ? Result<int64_t>(Error::resource("engine: has stopped")) : task.run(*core));
    } catch (...) {
      task.done.set_exception(std::current_exception());
    }
  }
}

Result<int64_t> Engine::State::between_steps(std::function<Result<int64_t>(EngineCore&)> run) {
  std::future<Result<int64_t>> done;
  {
    std::lock_guard lock(mutex);
    if (stop) return Error::resource("engine: has stopped");
    tasks.push_back({std::move(run), {}});
    done = tasks.back().done.get_future();
  }
  wake.notify_one();
  try {
    return done.get();
  } catch (const std::bad_alloc&) {
    return Error::resource("engine: out of memory");
  } catch (const std::exception& error) {
    return Error::internal(fmt::format("engine: {}", error.what()));
  }
}

void Engine::State::loop() {
  std::vector<TokenEvent> events;
  Error failure;
  try {
    for (;;) {
      receive();
      {
        std::lock_guard lock(mutex);
        if (stop) break;
      }
      send_snapshots(false);
      run_tasks(false);
      if (core->idle()) continue;
      events.clear();
      step_began = steady_ns();
      core->step(events);
      step_began = 0;
      {
        std::lock_guard lock(mutex);
        stats = core->stats();
      }
      for (auto& event : events) deliver(std::move(event));
    }
  } catch (const std::bad_alloc&) {
    failure = Error::resource("engine: out of memory in a step; the engine has stopped");
  } catch (const std::exception& error) {
    failure = Error::internal(fmt::format("engine: {}; the engine has stopped", error.what()));
  }
  if (!failure.message.empty()) {
    std::lock_guard lock(mutex);
    stop = true;
  }
  end_all(failure);
}

// Sends every stream its last event, also streams that were submitted in the meantime.
void Engine::State::end_all(const Error& failure) {
  {
    std::lock_guard lock(mutex);
    for (auto& one : submitted) {
      const RequestId id = one.stream->id;
      streams[id] = std::move(one.stream);
    }
    submitted.clear();
  }
  while (!streams.empty()) {
    TokenEvent event;
    event.request = streams.begin()->first;
    event.finish = failure.message.empty() ? FinishReason::cancelled : FinishReason::error;
    event.last = true;
    event.error = failure;
    deliver(std::move(event));
  }
  send_snapshots(true);  // `stop` is set, so no further snapshot is requested
  run_tasks(true);
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

// With the mutex held.
Result<void> Engine::State::take_room(int64_t places, int64_t memory) {
  if (open_streams + places > stream_limit)
    return Error::resource("queue: " + std::to_string(open_streams) + " requests are open already; try again later");
  const int64_t limit = core->executor().limits().request_bytes;
  if (limit > 0 && memory > 0 && open_memory + memory > limit)
    return Error::resource(
        fmt::format("queue: the open requests take {} of the {} that the memory budget has for them; try again later",
                    format_bytes(open_memory), format_bytes(limit)));
  open_streams += places;
  open_memory += memory;
  return {};
}

Result<std::shared_ptr<QueuePlace>> Engine::State::take_place(int64_t tokens) {
  const int64_t memory = request_memory(tokens);
  // Before it is taken, so that a lack of memory takes nothing.
  const auto gives_back = std::make_shared<bool>(false);
  auto place = std::make_shared<QueuePlace>(memory, [weak = weak_from_this(), memory, gives_back] {
    const auto state = *gives_back ? weak.lock() : nullptr;
    if (!state) return;
    std::lock_guard lock(state->mutex);
    --state->open_streams;
    state->open_memory -= memory;
  });
  std::lock_guard lock(mutex);
  if (stop) return Error::resource("engine: has stopped");
  if (auto room = take_room(1, memory); !room.ok()) return room.error();
  *gives_back = true;
  return place;
}

Result<RequestId> Engine::State::submit(Request request, const std::shared_ptr<Stream::State>& stream,
                                        std::shared_ptr<QueuePlace> place) {
  MILLRACE_TRY_VOID(core->check(request));
  MILLRACE_TRY(CompiledConstraint compiled, core->executor().chooser().compile(request.constraint, {}));
  MILLRACE_TRY(const auto rule, core->eviction_rule(request));
  const int64_t tokens = longest_stream(request, core->context(), rule.get());
  const ExecutorLimits& limits = core->executor().limits();
  const int64_t evictor =
      request_evictor_memory(request, rule.get(), tokens, limits.drafts, core->kv().layout().heads(),
                             core->kv().layout().tables(), limits.gate_dims);
  const int64_t answer =
      request_memory(tokens) + request_logprob_memory(request, tokens, stream->sink != nullptr) + evictor;
  const int64_t memory = std::max({request.n, request.best_of, request.beams}) * answer + embeddings_bytes(request);
  {
    std::lock_guard lock(mutex);
    if (stop) return Error::resource("engine: has stopped");
    const bool placed = place && !place->taken;
    stream->places = placed ? 0 : 1;
    stream->memory = placed ? std::max<int64_t>(0, memory - place->memory) : memory;
    MILLRACE_TRY_VOID(take_room(stream->places, stream->memory));
    if (placed) {
      place->taken = true;
      stream->place = place;
    }
    stream->id = next_id++;
    submitted.push_back({stream, std::move(request), std::move(compiled), steady_ns()});
  }
  wake.notify_one();
  return stream->id;
}

void Engine::State::cancel(RequestId id) {
  std::lock_guard guard(mutex);
  cancelled.push_back(id);
  wake.notify_one();
}

void Engine::State::raise(RequestId id, int64_t priority) {
  std::lock_guard guard(mutex);
  raised.push_back({id, priority});
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

EngineStats Engine::stats() const {
  const MemoryAccounts* accounts = state_->core->executor().accounts();
  std::lock_guard lock(state_->mutex);
  EngineStats stats = state_->stats;
  if (accounts) {
    stats.memory_budget = accounts->budget();
    stats.memory = memory_uses(*accounts);
  }
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
