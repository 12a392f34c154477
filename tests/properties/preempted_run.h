// A stream that is preempted at many stages.
#pragma once

#include "properties/stream_bits.h"

namespace millrace::testing {

// Runs request 1, the only one, and preempts it after `every` steps, then more and more rarely. `swapped`: into the
// tier that the engine has; otherwise it is computed again. Blocks are counted after each step. Returns its tokens.
inline std::vector<TokenId> tokens_when_preempted(EngineCore& core, int64_t every, bool swapped) {
  std::vector<TokenId> tokens;
  std::vector<TokenEvent> events;
  for (int64_t steps = 0, preempted = 0, next = every - 1; !core.idle() && steps < 10'000; ++steps) {
    events.clear();
    if (steps == next) {
      next += every * (1 + 7 * ++preempted);
      StepPlan plan;
      plan.preempted = {{1, swapped}};
      (void)core.replay(plan, events);
    } else {
      core.step(events);
    }
    EXPECT_TRUE(core.check_blocks().ok());
    for (const TokenEvent& event : events)
      if (event.token >= 0) tokens.push_back(event.token);
  }
  EXPECT_TRUE(core.idle()) << "it never ends";
  EXPECT_GT(core.stats().preemptions, 0);
  return tokens;
}

}  // namespace millrace::testing
