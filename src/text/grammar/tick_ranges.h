// The possible numbers of ticks (see expr.h) between each state of a rule and the end of the rule. A call of a counted
// rule bounds this number. A state from which no possible number is within the bounds is a dead end for that call.
//
//   [ true, true  : any number            [ true, true \n : none, so not for a call that needs one more
//
// A range has no gaps: every number between its bounds is reachable. The rules of the schema compiler satisfy this: an
// optional item or member adds one to the maximum, a repeatable one removes the maximum, and a required one adds one to
// both bounds. If a state can continue in several ways, their ranges are adjacent or overlap. Rules with gaps are
// detected.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/grammar/compile_budget.h"
#include "text/grammar/expr.h"

namespace millrace {

struct TickRange {
  uint32_t least = kNoLimit, most = 0;  // most kNoLimit: unbounded; by default empty: the end is unreachable
  bool empty() const { return least == kNoLimit; }
  // Returns true if some number of the range is in [need, room].
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
  bool gaps = false;  // true: some state cannot reach every number of its range
};

// Errors: those of the budget.
Result<TickRanges> tick_ranges(std::span<const uint8_t> accepting, std::span<const TickEdge> edges,
                               CompileBudget* budget);

}  // namespace millrace
