// What an Engine and its thread share: the queue of requests and cancellations, the open streams and what they take.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/engine_core.h"
#include "millrace/engine.h"

namespace millrace {

inline int64_t steady_ns() { return SteadyClock().now_ns(); }

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

struct Engine::State : std::enable_shared_from_this<Engine::State> {
  std::unique_ptr<EngineCore> core;  // used by the engine thread only, except check() and context()

  mutable std::mutex mutex;
  std::condition_variable wake;
  bool stop = false;
  RequestId next_id = 1;
  struct Submitted {
    std::shared_ptr<Stream::State> stream;
    PreparedRequest request;
    int64_t when_ns;  // when it was submitted; the rest of a running step counts as waiting time
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

}  // namespace millrace
