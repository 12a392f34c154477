// Which streams may be preempted, and how often. A preemption must be paid for by progress:
//
//   - between two preemptions a stream computes at least one new token;
//   - a stream is preempted for a newcomer only once it has computed twice the tokens that it has lost so far;
//   - it is preempted for a running stream's next block unless it has lost more than twice the tokens it has.
//
// Before a preemption, a victim has therefore lost at most 2 size() tokens, and now loses at most size() more:
//
//   lost by a stream  <=  3 (prompt + answer)
//
// This holds for every policy. Each preemption costs at least one token more than the previous one, so k of them cost
// at least k (k - 1) / 2. A protected stream is promised the blocks up to the point where it may be preempted again
// (Planner::promised_blocks), so it never lacks one; the other streams find blocks among themselves.
#pragma once

#include <algorithm>

#include "flow/sequence.h"

namespace millrace {

inline constexpr int64_t kMaxLost = 2;  // limit of lost tokens, as a multiple of the stream's tokens

// Returns true if the engine can take the stream's blocks away now; used by planner and engine.
inline bool can_be_preempted(const Sequence& stream) {
  return stream.phase == StreamPhase::running && !stream.non_preemptible;
}

// Returns true if the planner may preempt the stream, for a running or for a waiting stream.
inline bool may_be_victim(const Sequence& stream, bool to_newcomer) {
  if (!can_be_preempted(stream) || stream.computed < stream.progress.safe_until ||
      stream.progress.lost > kMaxLost * stream.size())
    return false;
  return !to_newcomer || stream.computed >= 2 * stream.progress.lost;
}
// A running stream is always allowed blocks for this many computed tokens.
inline int64_t spared_tokens(const Sequence& stream) {
  return std::max(stream.progress.safe_until, (stream.progress.lost + kMaxLost - 1) / kMaxLost);
}

// Records a preemption: the computed tokens are lost, or stored in a tier.
inline void spare(Sequence& stream, bool loses) {
  stream.progress.safe_until = std::max(stream.progress.safe_until, stream.computed + 1);
  if (loses) stream.progress.lost += stream.to_recompute();
}

}  // namespace millrace
