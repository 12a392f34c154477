#include "server/telemetry/live_feed.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/start_thread.h"
#include "server/generation/answer.h"
#include "server/service.h"

namespace millrace {
namespace {

using Served = std::shared_ptr<ServedModel>;

}  // namespace

struct LiveFeed::State {
  struct Watcher {
    uint64_t number = 0;
    std::string model;
    Exchange exchange;
  };

  // The state of one watched model.
  struct Channel {
    bool requested = false;                  // a snapshot is pending
    std::optional<EngineSnapshot> snapshot;  // received, not sent yet
    std::weak_ptr<ServedModel> greeted;      // the engine that the last hello described
  };

  const Service& service;
  std::mutex mutex;
  std::condition_variable wake;
  bool stop = false;
  std::map<std::string, Channel> channels;  // by model; a pending snapshot outlives its watchers
  uint64_t next_watcher = 1;
  std::vector<Watcher> watchers;
  std::thread thread;  // started by the first watcher

  explicit State(const Service& s) : service(s) {}
  void loop(const std::weak_ptr<State>& self);
  std::map<std::string, Served> watched(std::unique_lock<std::mutex>& lock);
  void request(std::unique_lock<std::mutex>& lock, const std::weak_ptr<State>& self, const std::string& model,
               const Served& served);
  bool received(const std::map<std::string, Served>& models) const;
  std::string events(const std::string& model, const Served& served);
  void send(std::unique_lock<std::mutex>& lock, const std::map<std::string, std::string>& bytes, bool last);
};

// Returns the watched models; null for those that are not loaded. Releases the lock meanwhile.
std::map<std::string, Served> LiveFeed::State::watched(std::unique_lock<std::mutex>& lock) {
  std::map<std::string, Served> out;
  for (const Watcher& one : watchers) out.emplace(one.model, nullptr);
  const bool all = out.erase(kAllModels) > 0;
  lock.unlock();
  for (Served& one : service.models().loaded()) {
    const auto found = out.find(one->name());
    if (all || found != out.end()) out[one->name()] = std::move(one);
  }
  lock.lock();
  return out;
}

// The callback holds only a weak reference to the state. The engine answers every snapshot request that it accepts,
// even when it stops.
void LiveFeed::State::request(std::unique_lock<std::mutex>& lock, const std::weak_ptr<State>& self,
                              const std::string& model, const Served& served) {
  Channel& channel = channels[model];
  if (!served || channel.requested || channel.snapshot) return;
  channel.requested = true;
  lock.unlock();
  const bool accepted = served->engine->snapshot([self, model](EngineSnapshot&& received) {
    const auto state = self.lock();
    if (!state) return;
    std::lock_guard guard(state->mutex);
    Channel& own = state->channels[model];
    if (!received.stopped) own.snapshot = std::move(received);
    own.requested = false;
    state->wake.notify_one();
  });
  lock.lock();
  if (!accepted) channels[model].requested = false;
}

// Returns true if every loaded model has a snapshot to send.
bool LiveFeed::State::received(const std::map<std::string, Served>& models) const {
  return std::ranges::all_of(models, [&](const auto& one) {
    const auto channel = channels.find(one.first);
    return !one.second || (channel != channels.end() && channel->second.snapshot.has_value());
  });
}

std::string LiveFeed::State::events(const std::string& model, const Served& served) {
  Channel& channel = channels[model];
  std::string out;
  // Compared without a reference: it could be the last one, which joins the engine's thread, which may wait for the
  // mutex.
  if (channel.greeted.owner_before(served) || served.owner_before(channel.greeted)) {
    out = sse_event("hello", hello_json(service, model, served.get()));
    channel.greeted = served;
    channel.snapshot.reset();  // it describes the previous engine
  }
  if (channel.snapshot && served) {
    const EngineSnapshot taken = std::move(*channel.snapshot);
    channel.snapshot.reset();
    Json data = snapshot_json(taken, served->engine->stats());
    data["model"] = model;
    return out + sse_event("snapshot", data);
  }
  const EngineLiveness liveness = served ? served->engine->liveness() : EngineLiveness{.stopped = true};
  return out + sse_event("busy", {{"model", model},
                                  {"step_seconds", liveness.step_seconds},
                                  {"stopped", liveness.stopped},
                                  {"loaded", served != nullptr}});
}

void LiveFeed::State::send(std::unique_lock<std::mutex>& lock, const std::map<std::string, std::string>& bytes,
                           bool last) {
  const auto to = watchers;
  lock.unlock();
  for (const Watcher& one : to) {
    if (last) {
      one.exchange.finish("");
      continue;
    }
    for (const auto& [model, events] : bytes)
      if (one.model == model || one.model == kAllModels) one.exchange.write(events);
  }
  lock.lock();
}

void LiveFeed::State::loop(const std::weak_ptr<State>& self) {
  using SteadyClock = std::chrono::steady_clock;
  std::unique_lock lock(mutex);
  while (!stop) {
    wake.wait(lock, [&] { return stop || !watchers.empty(); });
    if (stop) break;
    const auto next = SteadyClock::now() + std::chrono::milliseconds(1000 / kEachSecond);
    auto models = watched(lock);
    for (const auto& [model, served] : models) request(lock, self, model, served);
    wake.wait_until(lock, next, [&] { return stop || received(models); });
    const bool drains = service.draining();
    std::map<std::string, std::string> bytes;
    if (!stop && !drains)
      for (const auto& [model, served] : models) bytes[model] = events(model, served);
    lock.unlock();
    models.clear();  // may hold the last reference, which joins the engine's thread, which may wait for the mutex
    lock.lock();
    if (stop) break;
    send(lock, bytes, drains);
    if (drains) {
      watchers.clear();
      continue;
    }
    wake.wait_until(lock, next, [&] { return stop; });
  }
}

namespace {

// Appends a hello for the model, or for every loaded one. Returns the engine of the named model; null: not loaded.
std::weak_ptr<ServedModel> greet(const Service& service, const std::string& model, std::string& out) {
  std::weak_ptr<ServedModel> own;
  for (const Served& one : service.models().loaded()) {
    if (model != LiveFeed::kAllModels && one->name() != model) continue;
    out += sse_event("hello", hello_json(service, one->name(), one.get()));
    own = one;
  }
  if (out.empty() && model != LiveFeed::kAllModels) out = sse_event("hello", hello_json(service, model, nullptr));
  return own;
}

}  // namespace

LiveFeed::LiveFeed(const Service& service) : state_(std::make_shared<State>(service)) {}

LiveFeed::~LiveFeed() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

bool LiveFeed::watch(const Exchange& exchange, HttpReply head, const std::string& model) {
  const std::weak_ptr<ServedModel> greeted = greet(state_->service, model, head.body);
  std::lock_guard lock(state_->mutex);
  if (state_->stop || state_->watchers.size() >= kMaxWatchers) return false;
  if (!state_->thread.joinable()) {
    auto started =
        start_thread("live feed", [state = state_.get(), self = std::weak_ptr<State>(state_)] { state->loop(self); });
    if (!started.ok()) return false;
    state_->thread = std::move(*started);
  }
  const auto same = [&](const State::Watcher& one) { return one.model == model; };
  if (model != kAllModels && std::ranges::none_of(state_->watchers, same)) state_->channels[model].greeted = greeted;
  const uint64_t number = state_->next_watcher++;
  state_->watchers.push_back({number, model, exchange});
  exchange.begin_stream(std::move(head));
  exchange.on_disconnect([self = std::weak_ptr<State>(state_), number] {
    const auto state = self.lock();
    if (!state) return;
    std::lock_guard guard(state->mutex);
    std::erase_if(state->watchers, [&](const State::Watcher& watcher) { return watcher.number == number; });
  });
  state_->wake.notify_all();
  return true;
}

}  // namespace millrace
