#include "engine/engine_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "engine/request_check.h"
#include "run/memory_plan.h"
#include "run/prompt_embeddings.h"

namespace millrace {

namespace {

// Bytes of the documents that an encoder reads while their request waits and runs.
int64_t encoded_bytes(const DocumentTokens& documents) {
  int64_t tokens = 0;
  for (const auto& document : documents) tokens += std::ssize(document);
  return tokens * static_cast<int64_t>(sizeof(TokenId));
}

}  // namespace

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
  for (auto& [stream, request, when_ns] : requests) {
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

Result<RequestId> Engine::State::submit(Request given, const std::shared_ptr<Stream::State>& stream,
                                        std::shared_ptr<QueuePlace> place) {
  MILLRACE_TRY(PreparedRequest prepared, core->prepare(std::move(given)));
  const Request& request = prepared.request;
  MILLRACE_TRY(prepared.compiled, core->executor().chooser().compile(request.constraint, {}));
  const EvictionRule* rule = prepared.evictor.get();
  const int64_t tokens = longest_stream(request, core->context(), rule);
  const ExecutorLimits& limits = core->executor().limits();
  const int64_t evictor = request_evictor_memory(request, rule, tokens, limits.drafts, core->kv().layout().heads(),
                                                 core->kv().layout().tables(), limits.gate_dims);
  const int64_t answer =
      request_memory(tokens) + request_logprob_memory(request, tokens, stream->sink != nullptr) + evictor;
  const int64_t memory = std::max({request.n, request.best_of, request.beams}) * answer + embeddings_bytes(request) +
                         encoded_bytes(prepared.encoded);
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
    submitted.push_back({stream, std::move(prepared), steady_ns()});
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

}  // namespace millrace
