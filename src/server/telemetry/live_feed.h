// LiveFeed: what the engine does, as server-sent events, to those who watch. One thread asks the engine for a snapshot
// some times a second, writes it out once, and hands the same bytes to every watcher; it sleeps when there is none. The
// engine never waits for it, and a watcher who does not read is cut like any slow reader. Thread-safe.
//
//   hello   once: what the engine was made with
//   snapshot    what there is to see now, and the steps since the last one
//   busy    instead of it, while a long step is under way or the engine has stopped
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
  static constexpr size_t kMostWatchers = 16;
  static constexpr int kEachSecond = 5;  // snapshots

  explicit LiveFeed(const Service& service);
  ~LiveFeed();

  // False: so many watch already.
  bool watch(const Exchange& exchange, HttpReply head);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The data of the events; docs/page.md says what their fields mean.
Json hello_json(const Service& service);
Json snapshot_json(const EngineSnapshot& snapshot, const EngineStats& stats);

}  // namespace millrace
