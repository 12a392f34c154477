// TrialSteps: decides when a step verifies a draft that is not expected to pay. The expectation depends on two
// estimates: the time of a step with drafted tokens, and the number of kept tokens. Both are learned from steps with
// drafted tokens; without trials, a wrong first guess would never be corrected. The engine calls try_step() in each
// step whose drafts do not pay.
//
// Trials are paid from a credit, counted in steps without drafts. The credit begins with kFirst steps. Each declined
// trial adds kShare of a step, so in the long run trials take at most that share of the time. The first trial runs at
// any cost; the declined steps after it pay its debt.
#pragma once

#include <algorithm>

namespace millrace {

class TrialSteps {
 public:
  // `cost`: additional duration of the step due to the draft, divided by the duration without it. Returns true if the
  // step runs the draft.
  bool try_step(double cost) {
    cost = std::max(1.0, cost);  // so that cheap trials are rare, too
    if (begun_ && first_ + earned_ < cost) {
      earned_ = std::min(std::max(kFirst, cost), earned_ + kShare);
      return false;
    }
    begun_ = true;
    const double paid = std::min(first_, cost);
    first_ -= paid;
    earned_ -= cost - paid;
    return true;
  }
  // Called when a step runs drafts that are expected to pay: its observation saves one of the first trials.
  void ran() {
    begun_ = true;
    first_ = std::max(0.0, first_ - 1);
  }

 private:
  static constexpr double kFirst = 8, kShare = 1.0 / 64;
  double first_ = kFirst, earned_ = 0;
  bool begun_ = false;  // a draft has run
};

}  // namespace millrace
