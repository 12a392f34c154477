// EventRelay: an answer's stream, as a client receives it from nodes that may fail. If a node is lost in the middle of
// a stream, another one sends the same stream from its beginning, because the same request has the same bits on every
// node. The relay passes on what the client has not received yet, and compares the rest with what it has.
//
//   node 1   e0 e1 ping e2 e3 (lost)
//   node 2                    e0 e1 e2 e3 e4 e5 end
//   client   e0 e1      e2 e3             e4 e5
//
// Only whole events are passed on. Pings depend on the clock and are left out: the router sends its own. Events are
// compared without the fields that depend on the clock or on caches (usage, timings, durations).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

class EventRelay {
 public:
  enum class Kind {
    events,  // text/event-stream: an empty line ends an event
    lines,   // application/x-ndjson
  };
  static constexpr size_t kMaxEventBytes = size_t{16} << 20;

  // `goodbye`: what a node sends at the end of a stream that it cannot complete, because it stops.
  explicit EventRelay(Kind kind, std::string goodbye = {});

  // Takes the next bytes of the present node and appends to `out` what the client has not received yet. Errors:
  // internal (an event differs from the one that another node sent; an event is too long).
  Result<void> push(std::string_view bytes, std::string& out);
  // Another node sends the stream from its beginning.
  void restart();
  // The present node has said goodbye, which is not passed on.
  bool gave_up() const { return gave_up_; }
  // Bytes behind the last whole event: a stream that has ended well has none.
  bool in_event() const { return !unfinished_.empty(); }
  int64_t passed_on() const { return static_cast<int64_t>(sent_.size()); }  // events

 private:
  size_t end_of_event(std::string_view text, size_t from) const;  // npos: not there yet
  Result<void> take(std::string_view event, std::string& out);

  const Kind kind_;
  std::string goodbye_;  // its first event
  std::string unfinished_;
  std::vector<uint64_t> sent_;  // digests of the events that the client received
  size_t at_ = 0;               // events of the present node
  bool gave_up_ = false;
};

// A digest of an event without what depends on the clock or on caches. For tests.
uint64_t event_digest(std::string_view event);

}  // namespace millrace
