// Who may be made to give way, and how often. A preemption must pay for itself:
//
//   - between two preemptions a stream computes at least one token that is new;
//   - to a newcomer it gives way only with twice the tokens computed that it has lost so far;
//   - for a running stream's next block, where somebody has to go, unless it has lost more than twice the tokens it has.
//
// Who is asked has thus lost at most 2 size() tokens, and loses at most size() more:
//
//   lost by a stream  <=  3 (prompt + answer)
//
// That holds under every policy, whatever it ranks and whomever it names. As each time costs at least a token more than
// the time before, k times cost k (k - 1) / 2 or more. A stream that is spared is promised the blocks up to where it no
// longer is (Planner::promised_blocks), so it never lacks one itself, and those that are not spared make room among
// each other.
#pragma once

#include <algorithm>

#include "flow/sequence.h"

namespace millrace {

inline constexpr int64_t kMostLost = 2;  // times what the stream has

// Whether the engine can take the stream's blocks away now: the one test, for planner and engine.
inline bool can_give_way(const Sequence& stream) { return stream.phase == StreamPhase::running && !stream.stays; }

// Whether the planner may make it give way, for a running stream or for one that waits.
inline bool may_be_victim(const Sequence& stream, bool to_newcomer) {
  if (!can_give_way(stream) || stream.computed < stream.safe_until || stream.lost > kMostLost * stream.size()) return false;
  return !to_newcomer || stream.computed >= 2 * stream.lost;
}
// With so many tokens computed a running stream may always have its blocks.
inline int64_t spared_tokens(const Sequence& stream) { return std::max(stream.safe_until, (stream.lost + kMostLost - 1) / kMostLost); }

// The stream gives way; what it computed is lost, or kept in a tier.
inline void spare(Sequence& stream, bool loses) {
  stream.safe_until = std::max(stream.safe_until, stream.computed + 1);
  if (loses) stream.lost += stream.stored();
}

}  // namespace millrace
