// SnapshotRecorder: the steps and ended streams since the last snapshot. It records from the first snapshot on, and
// stops when none is taken for a while; then a step costs nothing again. Owned by the engine thread.
//
//   snapshot() ... step, step, end, step ... snapshot()      returns what happened between the two, the latest of each
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "flow/sequence.h"
#include "flow/step_plan.h"
#include "millrace/snapshot.h"
#include "run/executors/executor.h"

namespace millrace {

StreamSnapshot stream_snapshot(const Sequence& sequence);

class SnapshotRecorder {
 public:
  static constexpr int64_t kPatienceNs = 3'000'000'000;  // from the last snapshot on
  static constexpr size_t kMaxEnded = 256;

  void step(int64_t number, const StepPlan& plan, std::span<const StepWork> work, int64_t began_ns, double seconds);
  void ended(const Sequence& sequence, int64_t now);
  // Hands over the record and begins a new one.
  void take(int64_t now, EngineSnapshot& snapshot);

 private:
  bool recording_ = false;
  int64_t last_snapshot_ = 0;
  std::deque<StepSnapshot> steps_;
  std::deque<StreamSnapshot> ended_;
  int64_t missed_ = 0;
};

}  // namespace millrace
