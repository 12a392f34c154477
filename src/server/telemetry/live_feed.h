// LiveFeed: streams the engine's state to watching clients as server-sent events. One thread requests a snapshot
// several times a second, serializes it once and sends the same bytes to every watcher; it sleeps while there are none.
// The engine never waits for it, and a watcher that does not read is disconnected like any slow client. Thread-safe.
//
//   hello       once: the engine's configuration
//   snapshot    the current state, and the steps since the last snapshot
//   busy        instead of a snapshot during a long step, or if the engine has stopped
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "millrace/snapshot.h"
#include "server/http/http.h"
#include "server/json.h"

namespace millrace {

class Service;
struct EngineStats;

class LiveFeed {
 public:
  static constexpr size_t kMaxWatchers = 16;
  static constexpr int kEachSecond = 5;  // snapshots per second

  explicit LiveFeed(const Service& service);
  ~LiveFeed();

  // False: there are already kMaxWatchers.
  bool watch(const Exchange& exchange, HttpReply head);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The data of the events; docs/page.md describes their fields.
Json hello_json(const Service& service);
Json snapshot_json(const EngineSnapshot& snapshot, const EngineStats& stats);

}  // namespace millrace
