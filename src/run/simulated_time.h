// SimulatedTime: what the passes of a simulated machine cost, on the virtual clock that they advance. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "run/pattern_steps.h"
#include "schedule/cost_model.h"

namespace millrace {

inline int64_t simulated_ns(double seconds) {
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(seconds, 1e9) * 1e9));
}

struct SimulatedTime {
  ManualClock& clock;
  std::unique_ptr<CostModel> cost = nullptr;
  std::unique_ptr<PatternSteps> pattern = nullptr;  // null: queries see all keys

  // As StepShape::add(), with the pattern.
  void add(int64_t first, int64_t count, int64_t outputs, StepShape& shape, bool answer = false) {
    pattern ? pattern->add(first, count, outputs, answer, shape) : shape.add(first, count, outputs);
  }
  void advance(double seconds) { clock.advance_ns(simulated_ns(seconds)); }
};

}  // namespace millrace
