// LiveFeed: streams the state of a model's engine to watching clients as server-sent events. One thread requests a
// snapshot of every watched engine several times a second, serializes it once and sends the same bytes to every watcher
// of that model; it sleeps while there are none. Engines never wait for it, and a watcher that does not read is
// disconnected like any slow client. Thread-safe.
//
//   hello       the engine's configuration: at the beginning, and when the model was loaded again
//   snapshot    the current state, and the steps since the last snapshot
//   busy        instead of a snapshot during a long step, or if the engine has stopped or is not loaded
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
struct ServedModel;

class LiveFeed {
 public:
  static constexpr size_t kMaxWatchers = 16;
  static constexpr int kEachSecond = 5;  // snapshots per second
  static constexpr const char* kAllModels = "*";

  explicit LiveFeed(const Service& service);
  ~LiveFeed();

  // `model`: canonical name, or kAllModels: every loaded one. Returns false if there are already kMaxWatchers.
  bool watch(const Exchange& exchange, HttpReply head, const std::string& model);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The data of the events; docs/page.md describes their fields. `served`: null if the model is not loaded.
Json hello_json(const Service& service, const std::string& model, const ServedModel* served);
Json snapshot_json(const EngineSnapshot& snapshot, const EngineStats& stats);

}  // namespace millrace
