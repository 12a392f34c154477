#include "server/telemetry/live_feed.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "base/start_thread.h"
#include "server/generation/answer.h"
#include "server/service.h"

namespace millrace {

struct LiveFeed::State {
  const Service& service;
  std::mutex mutex;
  std::condition_variable wake;
  bool stop = false;
  bool requested = false;                  // a snapshot is pending
  std::optional<EngineSnapshot> snapshot;  // received, not sent yet
  uint64_t next_watcher = 1;
  std::vector<std::pair<uint64_t, Exchange>> watchers;
  std::thread thread;  // started by the first watcher

  explicit State(const Service& s) : service(s) {}
  void loop(const std::weak_ptr<State>& self);
  void params(std::unique_lock<std::mutex>& lock, const std::weak_ptr<State>& self,
              const std::shared_ptr<ServedModel>& served);
  std::string event(const std::shared_ptr<ServedModel>& served);
  void send(std::unique_lock<std::mutex>& lock, const std::string& bytes, bool last);
};

// The callback holds only a weak reference to the state. The engine answers every snapshot request that it accepts,
// even when it stops.
void LiveFeed::State::params(std::unique_lock<std::mutex>& lock, const std::weak_ptr<State>& self,
                             const std::shared_ptr<ServedModel>& served) {
  if (!served || requested) return;
  requested = true;
  lock.unlock();
  const bool accepted = served->engine->snapshot([self](EngineSnapshot&& received) {
    const auto state = self.lock();
    if (!state) return;
    std::lock_guard guard(state->mutex);
    if (!received.stopped) state->snapshot = std::move(received);
    state->requested = false;
    state->wake.notify_one();
  });
  lock.lock();
  if (!accepted) requested = false;
}

std::string LiveFeed::State::event(const std::shared_ptr<ServedModel>& served) {
  if (snapshot && served) {
    const EngineSnapshot taken = std::move(*snapshot);
    snapshot.reset();
    return sse_event("snapshot", snapshot_json(taken, served->engine->stats()));
  }
  const EngineLiveness liveness = served ? served->engine->liveness() : EngineLiveness{.stopped = true};
  return sse_event("busy", {{"step_seconds", liveness.step_seconds}, {"stopped", liveness.stopped}});
}

void LiveFeed::State::send(std::unique_lock<std::mutex>& lock, const std::string& bytes, bool last) {
  const auto to = watchers;
  lock.unlock();
  for (const auto& [number, exchange] : to) last ? exchange.finish(bytes) : exchange.write(bytes);
  lock.lock();
}

void LiveFeed::State::loop(const std::weak_ptr<State>& self) {
  using SteadyClock = std::chrono::steady_clock;
  std::unique_lock lock(mutex);
  while (!stop) {
    wake.wait(lock, [&] { return stop || !watchers.empty(); });
    if (stop) break;
    const auto next = SteadyClock::now() + std::chrono::milliseconds(1000 / kEachSecond);
    lock.unlock();
    auto served = service.models().first();
    lock.lock();
    if (!snapshot) params(lock, self, served);
    wake.wait_until(lock, next, [&] { return stop || snapshot.has_value(); });
    if (stop) break;
    if (service.draining()) {
      send(lock, "", true);
      watchers.clear();
      continue;
    }
    const std::string bytes = event(served);
    lock.unlock();
    served.reset();  // may be the last reference: joins the engine's thread, which may wait for the mutex
    lock.lock();
    send(lock, bytes, false);
    wake.wait_until(lock, next, [&] { return stop; });
  }
}

LiveFeed::LiveFeed(const Service& service) : state_(std::make_shared<State>(service)) {}

LiveFeed::~LiveFeed() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

bool LiveFeed::watch(const Exchange& exchange, HttpReply head) {
  head.body = sse_event("hello", hello_json(state_->service));
  std::lock_guard lock(state_->mutex);
  if (state_->stop || state_->watchers.size() >= kMaxWatchers) return false;
  if (!state_->thread.joinable()) {
    auto started =
        start_thread("live feed", [state = state_.get(), self = std::weak_ptr<State>(state_)] { state->loop(self); });
    if (!started.ok()) return false;
    state_->thread = std::move(*started);
  }
  const uint64_t number = state_->next_watcher++;
  state_->watchers.emplace_back(number, exchange);
  exchange.begin_stream(std::move(head));
  exchange.on_disconnect([self = std::weak_ptr<State>(state_), number] {
    const auto state = self.lock();
    if (!state) return;
    std::lock_guard guard(state->mutex);
    std::erase_if(state->watchers, [&](const auto& watcher) { return watcher.first == number; });
  });
  state_->wake.notify_all();
  return true;
}

}  // namespace millrace
