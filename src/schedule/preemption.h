// Who may be made to give way, and how often. A preemption must pay for itself: a stream that lost n computed tokens is
// no victim again before it has computed 2n. So what a stream loses at least doubles from one time to the next, and all
// of it together stays below twice what it has in the end:
//
//   n1 + n2 + ... + nk  <=  nk (1 + 1/2 + 1/4 + ...)  <  2 nk  <=  2 (prompt + answer)
//
// That holds under every policy, whatever it ranks and whomever it names. A stream that is spared is promised the blocks
// for all the tokens up to there when it is admitted (Planner::promised_blocks), so it never lacks one itself, and those
// that are not spared make room among each other.
#pragma once

#include <algorithm>

#include "flow/sequence.h"

namespace millrace {

// Whether the engine can take the stream's blocks away now: the one test, for planner and engine.
inline bool can_give_way(const Sequence& stream) { return stream.phase == StreamPhase::running && !stream.stays; }

// Whether the planner may make it give way.
inline bool may_be_victim(const Sequence& stream) { return can_give_way(stream) && stream.computed >= stream.safe_until; }

// The stream gives way. With what it computed lost, or kept in a tier: then one token more is enough, so that it comes
// forward between two swaps.
inline void spare(Sequence& stream, bool lost) {
  stream.safe_until = std::max({stream.safe_until, stream.computed + 1, lost ? 2 * stream.computed : 0});
}

}  // namespace millrace
