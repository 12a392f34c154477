#include "server/live_feed.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "server/answer.h"
#include "server/service.h"

namespace millrace {

struct LiveFeed::State {
  const Service& service;
  std::mutex mutex;
  std::condition_variable wake;
  bool stop = false;
  bool asked = false;              // a look is on its way
  std::optional<EngineLook> look;  // that came
  uint64_t next_watcher = 1;
  std::vector<std::pair<uint64_t, Exchange>> watchers;
  std::thread thread;              // from the first watcher on

  explicit State(const Service& s) : service(s) {}
  void loop(const std::weak_ptr<State>& self);
  void ask(const std::weak_ptr<State>& self);
  std::string event();
  void send(std::unique_lock<std::mutex>& lock, const std::string& bytes, bool last);
};

// The sink outlives neither the engine nor what it writes to.
void LiveFeed::State::ask(const std::weak_ptr<State>& self) {
  const auto served = service.models().first();
  if (!served) return;
  const bool comes = served->engine->look([self](EngineLook&& look) {
    const auto state = self.lock();
    if (!state) return;
    std::lock_guard lock(state->mutex);
    if (!look.stopped) state->look = std::move(look);
    state->asked = false;
    state->wake.notify_one();
  });
  if (comes) return;
  std::lock_guard lock(mutex);
  asked = false;
}

std::string LiveFeed::State::event() {
  const auto served = service.models().first();
  if (look && served) {
    const EngineLook taken = std::move(*look);
    look.reset();
    return sse_event("look", look_json(taken, served->engine->stats()));
  }
  if (!served) asked = false;  // its look never comes
  const EnginePulse pulse = served ? served->engine->pulse() : EnginePulse{.stopped = true};
  return sse_event("busy", {{"step_seconds", pulse.step_seconds}, {"stopped", pulse.stopped}});
}

void LiveFeed::State::send(std::unique_lock<std::mutex>& lock, const std::string& bytes, bool last) {
  const auto to = watchers;
  lock.unlock();
  for (const auto& [number, exchange] : to) last ? exchange.finish(bytes) : exchange.write(bytes);
  lock.lock();
}

void LiveFeed::State::loop(const std::weak_ptr<State>& self) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(mutex);
  while (!stop) {
    wake.wait(lock, [&] { return stop || !watchers.empty(); });
    if (stop) break;
    const auto next = Clock::now() + std::chrono::milliseconds(1000 / kEachSecond);
    if (!asked && !look) {
      asked = true;
      lock.unlock();
      ask(self);
      lock.lock();
    }
    wake.wait_until(lock, next, [&] { return stop || look.has_value(); });
    if (stop) break;
    if (service.draining()) {
      send(lock, "", true);
      watchers.clear();
      continue;
    }
    send(lock, event(), false);
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
  if (state_->stop || state_->watchers.size() >= kMostWatchers) return false;
  if (!state_->thread.joinable()) {
    state_->thread = std::thread([state = state_.get(), self = std::weak_ptr<State>(state_)] { state->loop(self); });
  }
  const uint64_t number = state_->next_watcher++;
  state_->watchers.emplace_back(number, exchange);
  exchange.begin_stream(std::move(head));
  exchange.on_gone([self = std::weak_ptr<State>(state_), number] {
    const auto state = self.lock();
    if (!state) return;
    std::lock_guard guard(state->mutex);
    std::erase_if(state->watchers, [&](const auto& watcher) { return watcher.first == number; });
  });
  state_->wake.notify_all();
  return true;
}

}  // namespace millrace
