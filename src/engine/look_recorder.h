// LookRecorder: the steps and ended streams since the last look, while somebody watches. Owned by the engine thread; a
// watcher that does not come back for a while is forgotten, and then a step costs nothing again.
//
//   look() ... step, step, end, step ... look()      what is between two looks, the latest of each
#pragma once

#include <deque>
#include <vector>

#include "run/executor.h"
#include "flow/sequence.h"
#include "flow/step_plan.h"
#include "millrace/look.h"

namespace millrace {

LookedStream looked_stream(const Sequence& sequence);

class LookRecorder {
 public:
  static constexpr int64_t kForgottenNs = 3'000'000'000;  // since the last look
  static constexpr size_t kMostEnded = 256;

  explicit LookRecorder(int64_t now) : last_look_(now) {}
  bool forgotten(int64_t now) const { return now - last_look_ > kForgottenNs; }

  void step(int64_t number, const StepPlan& plan, const std::vector<StepWork>& work, int64_t began_ns, double seconds);
  void ended(const Sequence& sequence, int64_t now);
  // Hands over what there is, and begins anew.
  void take(int64_t now, EngineLook& look);

 private:
  int64_t last_look_;
  std::deque<LookedStep> steps_;
  std::deque<LookedStream> ended_;
  int64_t missed_ = 0;
};

}  // namespace millrace
