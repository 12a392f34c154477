// SimulatedTime: what the passes of a simulated machine cost, on the virtual clock that they advance. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "run/pattern_steps.h"
#include "schedule/cost_model.h"

namespace millrace {

inline int64_t simulated_ns(double seconds) {
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(seconds, 1e9) * 1e9));
}

// Tokens of one stream in a pass, with the arguments of StepShape::add().
struct SimulatedChunk {
  int64_t first = 0, count = 0, outputs = 0;
  double depth = 1;
  bool answer = false;
};

struct SimulatedTime {
  ManualClock& clock;
  std::unique_ptr<CostModel> cost = nullptr;
  std::unique_ptr<PatternSteps> pattern = nullptr;  // null: queries see all keys

  // As StepShape::add(), with the pattern.
  void add(const SimulatedChunk& chunk, StepShape& shape) {
    if (!pattern) return shape.add(chunk.first, chunk.count, chunk.outputs, chunk.depth);
    StepShape all;
    pattern->add(chunk.first, chunk.count, chunk.outputs, chunk.answer, all);
    shape.tokens += all.tokens;
    shape.outputs += all.outputs;
    shape.keys += std::llround(chunk.depth * static_cast<double>(all.keys));
    shape.pairs += chunk.depth * all.pairs;
    shape.skip(chunk.count, chunk.depth);
  }
  void advance(double seconds) { clock.advance_ns(simulated_ns(seconds)); }
};

}  // namespace millrace
