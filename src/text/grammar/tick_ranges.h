// How many ticks (see expr.h) can still come before a rule's end, from each of its states. Whoever calls a counted rule
// asks for a number of them; from a state where none of the numbers left fits there is no way on.
//
//   [ true, true  : any number            [ true, true \n : none, so not for a call that needs one more
//
// A range has no gaps: every number between its bounds is reached. What the schema compiler writes keeps to that: an
// item or member that is optional adds one to the most, one that may come often removes the bound, a required one adds
// one to both, and a state that stands for several of them joins ranges that touch. Other rules are found out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/grammar/compile_budget.h"
#include "text/grammar/expr.h"

namespace millrace {

struct TickRange {
  uint32_t least = kNoLimit, most = 0;  // kNoLimit as `most`: no bound. Empty as it is made: the end is not reached
  bool empty() const { return least == kNoLimit; }
  // Whether some number of the range is within the bounds, need <= room.
  bool meets(uint32_t need, uint32_t room) const { return least <= room && most >= need && !empty(); }
  TickRange plus(uint32_t ticks) const {
    return {least == kNoLimit ? kNoLimit : least + ticks, most == kNoLimit ? kNoLimit : most + ticks};
  }
  bool operator==(const TickRange&) const = default;
};

struct TickEdge {
  int32_t from = 0, to = 0;
  uint32_t ticks = 0;  // 0 or 1
};

struct TickRanges {
  std::vector<TickRange> states;
  bool gaps = false;  // some state's numbers are not all of its range, though both bounds are
};

// Errors: those of the budget.
Result<TickRanges> tick_ranges(std::span<const uint8_t> accepting, std::span<const TickEdge> edges,
                               CompileBudget* budget);

}  // namespace millrace
