// LivelockWatch: notices that steps no longer make progress, whatever the reason: streams preempt each other without a
// new token, far more tokens are recomputed than computed for the first time, or no stream runs though no block is
// under way. It counts the planner's own events (policy.h, ScheduleEvent), so it trusts neither the policies nor the
// rules that should make a live-lock impossible.
#pragma once

#include <memory>
#include <string>

#include "schedule/policy.h"

namespace millrace {

class LivelockWatch {
 public:
  static constexpr int64_t kEmptySteps = 64;  // in which nobody ran, though somebody could
  static constexpr int64_t kTurns = 4;        // preemptions of each stream without a token that is new
  static constexpr int64_t kLeastPreemptions = 64;
  static constexpr int64_t kLostTimes = 8;            // tokens lost for each new one ...
  static constexpr int64_t kLeastLost = 1'000'000;    // ... beyond these
  static constexpr int64_t kRemembered = 10'000'000;  // new tokens; then what is older counts half

  void observe(const ScheduleEvent& event);
  // After a step: whether anybody ran, and whether blocks are on their way to or from somewhere.
  void step(bool ran, bool moves);
  bool locked() const { return empty_steps_ > kEmptySteps || displaced() || wasteful(); }
  std::string why() const;
  void begin_anew();  // with the streams that are open

 private:
  bool displaced() const { return preemptions_ > std::max(kLeastPreemptions, kTurns * streams_at_once_); }
  bool wasteful() const { return lost_ > kLeastLost && lost_ / kLostTimes > kept_; }

  int64_t streams_ = 0, streams_at_once_ = 0;  // open; the most of them since the last new token
  int64_t preemptions_ = 0;                    // since the last new token
  int64_t empty_steps_ = 0;
  int64_t kept_ = 0, lost_ = 0;
};

// What the planner does instead when that happened: first come, first served, each with all the blocks that it may
// need, to its end.
std::unique_ptr<SchedulerPolicy> make_run_to_completion();

}  // namespace millrace
