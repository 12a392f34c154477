// StreamLists: all open streams of an engine. Each is owned by one of three lists, and found by its id.
//
//   add -> waiting -> start -> running -> leave -> leaving      waiting: by arrival    running: by admission
//             ^                   |                   |         leaving: being copied to the swap tier
//             '------ requeue ----+-------------------'
//
// A stream that has ended is removed from the table at once, and erased from its list when the step is over.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/live_stream.h"

namespace millrace {

using StreamPtr = std::unique_ptr<LiveStream>;
using StreamTable = std::unordered_map<RequestId, LiveStream*>;  // by stream id

class StreamLists {
 public:
  const std::deque<StreamPtr>& waiting() const { return waiting_; }
  const std::vector<StreamPtr>& running() const { return running_; }
  const std::vector<StreamPtr>& leaving() const { return leaving_; }
  const StreamTable& table() const { return table_; }
  LiveStream* find(RequestId stream) const;  // null: no such stream

  // Adds a new stream, which is assigned the next number of arrival, to the queue; or, as one beam of an admitted
  // search, to the running streams.
  void add(StreamPtr stream);
  void add_running(StreamPtr stream);
  void start(const LiveStream& stream);    // waiting -> running
  void leave(const LiveStream& stream);    // running -> leaving
  void requeue(const LiveStream& stream);  // running or leaving -> waiting, ahead of streams that arrived later
  void remove(const Sequence& stream);     // out of the table; its list still owns it
  void erase_ended();
  void erase_ended_running();

  void cancel(RequestId request);  // marks all streams of the request
  // Returns true if streams may have to end before the next step: one was cancelled since the last call, or has a time
  // limit.
  bool take_end_check() { return std::exchange(cancelled_, false) || limited_ > 0; }
  // A stream has found blocks. The running and leaving streams whose own blocks those were share them from now on.
  void mark_shared(const Sequence& found);
  bool answers_wait() const { return waiting_answers_ > 0; }  // streams with a parent are in the queue

 private:
  void open(LiveStream& stream);
  void enqueue(StreamPtr stream);

  StreamTable table_;
  std::deque<StreamPtr> waiting_;
  std::vector<StreamPtr> running_, leaving_;
  int64_t next_arrival_ = 1;
  int64_t waiting_answers_ = 0;  // in the queue, with a parent
  int64_t limited_ = 0;          // with a time limit
  bool cancelled_ = false;
};

}  // namespace millrace
