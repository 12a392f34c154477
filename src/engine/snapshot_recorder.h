// SnapshotRecorder: the steps and ended streams since the last snapshot, while somebody watches. Owned by the engine
// thread; a watcher that does not come back for a while is forgotten, and then a step costs nothing again.
//
//   snapshot() ... step, step, end, step ... snapshot()      what is between two snapshots, the latest of each
#pragma once

#include <deque>
#include <vector>

#include "flow/sequence.h"
#include "flow/step_plan.h"
#include "millrace/snapshot.h"
#include "run/executor.h"

namespace millrace {

StreamSnapshot stream_snapshot(const Sequence& sequence);

class SnapshotRecorder {
 public:
  static constexpr int64_t kForgottenNs = 3'000'000'000;  // since the last snapshot
  static constexpr size_t kMostEnded = 256;

  explicit SnapshotRecorder(int64_t now) : last_snapshot_(now) {}
  bool forgotten(int64_t now) const { return now - last_snapshot_ > kForgottenNs; }

  void step(int64_t number, const StepPlan& plan, const std::vector<StepWork>& work, int64_t began_ns, double seconds);
  void ended(const Sequence& sequence, int64_t now);
  // Hands over what there is, and begins anew.
  void take(int64_t now, EngineSnapshot& snapshot);

 private:
  int64_t last_snapshot_;
  std::deque<StepSnapshot> steps_;
  std::deque<StreamSnapshot> ended_;
  int64_t missed_ = 0;
};

}  // namespace millrace
