// TrialSteps: decides when a step verifies a draft that is not expected to pay. That expectation depends on two
// estimates: the time of a step with drafted tokens, and the number of kept tokens. Both need steps with drafted
// tokens; without trials a wrong first guess would never be corrected. The engine asks in each step whose drafts do not
// pay.
//
// Trials are paid from a credit, counted in steps without drafts. It begins with kFirst steps, and each step that is
// declined adds kShare of one, so that in the long run trials take at most that share of the time. The first trial runs
// at any cost; the declined steps after it pay its debt.
#pragma once

#include <algorithm>

namespace millrace {

class TrialSteps {
 public:
  // `cost`: additional duration of the step with the draft, in steps without one. Returns true if the step shall run
  // it.
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
