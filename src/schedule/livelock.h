// LivelockWatch: detects that steps make no progress. The signs are that streams preempt each other without a new
// token, that far more tokens are recomputed than computed for the first time, or that no stream runs although no block
// is in transit. The watch counts the planner's events (ScheduleEvent, policy.h). It does not depend on policies or on
// the rules that should make a live-lock impossible (preemption.h).
#pragma once

#include <memory>
#include <string>

#include "schedule/policy.h"

namespace millrace {

class LivelockWatch {
 public:
  static constexpr int64_t kEmptySteps = 64;  // limit of consecutive steps in which no stream ran although one could
  static constexpr int64_t kTurns = 4;        // limit of preemptions per stream without a new token ...
  static constexpr int64_t kMinPreemptions = 64;      // ... and of these preemptions of all streams together
  static constexpr int64_t kLostTimes = 8;            // limit of lost tokens per new token ...
  static constexpr int64_t kMinLost = 1'000'000;      // ... once more tokens than this are lost
  static constexpr int64_t kRemembered = 10'000'000;  // new tokens after which the counts of tokens are halved

  void observe(const ScheduleEvent& event);
  // Reports the end of a step. `ran`: a stream ran. `moves`: blocks are in transit.
  void step(bool ran, bool moves);
  bool locked() const { return empty_steps_ > kEmptySteps || displaced() || wasteful(); }
  std::string why() const;
  void begin_anew();  // clears all counts, except that of the open streams

 private:
  bool displaced() const { return preemptions_ > std::max(kMinPreemptions, kTurns * streams_at_once_); }
  bool wasteful() const { return lost_ > kMinLost && lost_ / kLostTimes > kept_; }

  int64_t streams_ = 0, streams_at_once_ = 0;  // open streams, and their maximum since the last new token
  int64_t preemptions_ = 0;                    // since the last new token
  int64_t empty_steps_ = 0;
  int64_t kept_ = 0, lost_ = 0;
};

// Returns the planner's fallback policy after a live-lock: first come, first served. Each stream runs to its end and is
// promised all the blocks that it may need.
std::unique_ptr<SchedulerPolicy> make_run_to_completion();

}  // namespace millrace
