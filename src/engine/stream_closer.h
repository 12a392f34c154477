// StreamCloser: ends a stream: emits its last event with the timings, and releases all that it holds: its load, its
// blocks, its copy in the swap tier, its entry in the table. Its list erases it when the step is over.
#pragma once

#include "engine/loop_context.h"
#include "engine/prefix_service.h"
#include "engine/snapshot_recorder.h"
#include "engine/store_loads.h"
#include "engine/swap.h"

namespace millrace {

class StreamCloser {
 public:
  StreamCloser(LoopContext& loop, StreamLists& lists, PrefixService& prefixes, StoreLoads& loads, Swap& swap,
               SnapshotRecorder& recorder)
      : loop_(loop), lists_(lists), prefixes_(prefixes), loads_(loads), swap_(swap), recorder_(recorder) {}

  // `event`: the stream's last token, or none. Not for beams (beam_driver.h).
  void finish(LiveStream& stream, FinishReason reason, TokenEvent event, std::vector<TokenEvent>& events);
  // Without an event. Marks the stream as ended.
  void release(LiveStream& stream);

 private:
  LoopContext& loop_;
  StreamLists& lists_;
  PrefixService& prefixes_;
  StoreLoads& loads_;
  Swap& swap_;
  SnapshotRecorder& recorder_;
};

// `generated`: tokens of the answer.
RequestTimings timings(const Sequence& stream, int64_t generated, int64_t now_ns);

}  // namespace millrace
