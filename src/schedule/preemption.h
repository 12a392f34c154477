// Who may be made to give way, and how often. A preemption must pay for itself: a stream that has lost more computed tokens
// than it has tokens is no victim until it has more, and between two preemptions it computes at least one token that is
// new. Who is asked has thus lost at most size() tokens, and loses at most as many again:
//
//   lost by a stream  <=  2 (prompt + answer)
//
// That holds under every policy, whatever it ranks and whomever it names. As each time costs at least a token more than
// the time before, it can be no more than about 2 sqrt(prompt + answer) times. A stream that is spared is promised the blocks
// up to where it no longer is (Planner::promised_blocks), so it never lacks one itself, and those that are not spared make
// room among each other.
#pragma once

#include <algorithm>

#include "flow/sequence.h"

namespace millrace {

// Whether the engine can take the stream's blocks away now: the one test, for planner and engine.
inline bool can_give_way(const Sequence& stream) { return stream.phase == StreamPhase::running && !stream.stays; }

// Whether the planner may make it give way.
inline bool may_be_victim(const Sequence& stream) {
  return can_give_way(stream) && stream.computed >= stream.safe_until && stream.lost <= stream.size();
}
// Once it has so many tokens it may be, whatever it has computed of them.
inline int64_t spared_tokens(const Sequence& stream) { return std::max(stream.safe_until, stream.lost); }

// The stream gives way; what it computed is lost, or kept in a tier.
inline void spare(Sequence& stream, bool loses) {
  stream.safe_until = std::max(stream.safe_until, stream.computed + 1);
  if (loses) stream.lost += stream.stored();
}

}  // namespace millrace
