// MaskWorker: a separate thread that computes the allowed next tokens of streams with ambiguous grammars, if a step has
// no time for it (sampling/mask_units.h). Such a stream is held back: it sits out steps while the others continue. Its
// answer is the same as if the step had waited.
//
//   step 7   streams 1 2 3     stream 2's mask takes too long: handed over
//   step 8   streams 1 3       hold_back(): not there yet
//   step 9   streams 1 2 3     there
//
// The streams' work takes turns, in slices that double, so that a stream with much work does not delay one with little.
// Used by the engine's thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/stream_lists.h"

namespace millrace {

// Shared by the stream, and by the worker while it runs it: what a stream no longer holds is dropped.
struct LateMask {
  std::shared_ptr<DeferredWork> work;
  int64_t units = 200'000;  // size of the next slice
  bool failed = false;      // out of memory
  std::atomic<bool> done = false;
};

class MaskWorker {
 public:
  MaskWorker() = default;
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  // Called before a step is planned: hands over remaining work, and holds back running streams whose work is not done.
  // Returns the streams that end now, because their last token has turned out to end them, they have their full length,
  // or memory was short (out_of_memory()).
  const std::vector<LiveStream*>& hold_back(const StreamLists& lists);
  static bool out_of_memory(const LiveStream& stream) { return stream.late_mask && stream.late_mask->failed; }

  bool any() const { return held_ > 0; }  // streams were held back
  void wait();                            // a little, for one of them

 private:
  bool begin(LiveStream& stream, int64_t& units);
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<std::weak_ptr<LateMask>> queue_;
  bool stop_ = false;
  int64_t finished_ = 0;  // pieces of work
  int64_t seen_ = 0;      // number of these before the last hold_back(); engine thread only
  int64_t held_ = 0;
  std::vector<LiveStream*> over_;
  std::thread thread_;  // with the first work
};

}  // namespace millrace
