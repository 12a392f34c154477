// EventQueue: the unread events of an engine's streams, between the engine's thread and the threads that poll. Its
// memory is bounded: a stream that is not polled holds at most `limit` events and is then cancelled, and the engine
// limits the number of streams (capi/engine.cc).
//
//   engine's thread   arrived()  -> StreamQueue::events -> next() of that stream
//                                \-> ready_ (streams with unread events, each once) -> next() of any
//
// Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "millrace.h"
#include "millrace/events.h"

namespace millrace {

// One unread event. `end` holds the members that only an answer's last event has.
struct StreamEvent {
  int32_t answer = 0;
  TokenId token = -1;
  float logprob = 0;
  FinishReason finish = FinishReason::none;
  bool last = false;
  std::string text;
  std::vector<TokenLogprob> top;
  struct End {
    Error error;
    RequestTimings timings;
  };
  std::unique_ptr<End> end;  // not null if `finish` is not none, or `last`
};

// One stream. Guarded by the queue's mutex, except `current`, which belongs to the thread that polls.
struct StreamQueue {
  std::deque<StreamEvent> events;
  std::condition_variable arrived;
  bool overflowed = false;  // too many events were unread
  bool ended = false;       // the last event has been read
  bool freed = false;       // by the caller: events are dropped
  bool is_ready = false;    // in EventQueue::ready_
  void* user_data = nullptr;
  millrace_stream* handle = nullptr;
  bool logprobs = false;  // requested

  StreamEvent current;  // the event that was read last
  std::vector<millrace_token_logprob> current_top;
};

class EventQueue {
 public:
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // nullopt: no limit
  enum class Outcome { event, timeout, end };

  explicit EventQueue(int64_t limit) : limit_(limit) {}

  // Counts the stream among those that next_of_any() waits for.
  void add(const std::shared_ptr<StreamQueue>& stream);
  void remove(const std::shared_ptr<StreamQueue>& stream);

  // Appends an event. Returns false if the request must be cancelled because too many events are unread; the stream's
  // last event then reports an error of kind resource.
  bool arrived(const std::shared_ptr<StreamQueue>& stream, TokenEvent&& event);

  // Moves the next event to stream.current.
  Outcome next(StreamQueue& stream, Deadline until);
  // Variant for any stream, each in its turn. *stream: out, the one whose event was read.
  Outcome next_of_any(Deadline until, std::shared_ptr<StreamQueue>* stream);

 private:
  void push(const std::shared_ptr<StreamQueue>& stream, StreamEvent event);
  void take(StreamQueue& stream);

  const int64_t limit_;
  std::mutex mutex_;
  std::condition_variable any_arrived_;
  std::deque<std::shared_ptr<StreamQueue>> ready_;
  int64_t unfinished_ = 0;  // streams whose last event has not been read
};

}  // namespace millrace
