// LivelockWatch: detects that steps make no progress, for any reason: streams preempt each other without a new token,
// far more tokens are recomputed than computed for the first time, or no stream runs though no block is in transit. It
// counts the planner's own events (policy.h, ScheduleEvent), so it depends neither on the policies nor on the rules
// that should make a live-lock impossible.
#pragma once

#include <memory>
#include <string>

#include "schedule/policy.h"

namespace millrace {

class LivelockWatch {
 public:
  static constexpr int64_t kEmptySteps = 64;  // consecutive steps in which nothing ran, though a stream could
  static constexpr int64_t kTurns = 4;        // preemptions per stream without a new token
  static constexpr int64_t kMinPreemptions = 64;
  static constexpr int64_t kLostTimes = 8;            // tokens lost per new one ...
  static constexpr int64_t kMinLost = 1'000'000;      // ... above this many
  static constexpr int64_t kRemembered = 10'000'000;  // new tokens; after that, older counts are halved

  void observe(const ScheduleEvent& event);
  // After a step: whether any stream ran, and whether blocks are in transit.
  void step(bool ran, bool moves);
  bool locked() const { return empty_steps_ > kEmptySteps || displaced() || wasteful(); }
  std::string why() const;
  void begin_anew();  // with the open streams

 private:
  bool displaced() const { return preemptions_ > std::max(kMinPreemptions, kTurns * streams_at_once_); }
  bool wasteful() const { return lost_ > kMinLost && lost_ / kLostTimes > kept_; }

  int64_t streams_ = 0, streams_at_once_ = 0;  // open; the most of them since the last new token
  int64_t preemptions_ = 0;                    // since the last new token
  int64_t empty_steps_ = 0;
  int64_t kept_ = 0, lost_ = 0;
};

// The planner's fallback after a live-lock: first come, first served; each stream runs to its end with all the blocks
// that it may need.
std::unique_ptr<SchedulerPolicy> make_run_to_completion();

}  // namespace millrace
