// Rules for which streams may be preempted, and how often. They ensure that streams progress between preemptions:
//
//   - Between two preemptions, a stream computes at least one new token.
//   - A stream is preempted for a waiting stream only if it has computed at least twice the tokens it has lost so far.
//   - A stream is not preempted for a running stream if it has lost more than twice the tokens it has.
//
// Before a preemption, a victim has therefore lost at most 2 size() tokens, and now loses at most size() more:
//
//   lost by a stream  <=  3 (prompt + answer)
//
// This holds for every policy. Each preemption costs at least one token more than the previous one, so k preemptions
// cost at least k (k - 1) / 2 tokens. A protected stream is promised all blocks up to the point where it may be
// preempted again (Planner::promised_blocks), so it never lacks a block; other streams preempt each other.
#pragma once

#include <algorithm>

#include "flow/sequence.h"

namespace millrace {

inline constexpr int64_t kMaxLost = 2;  // limit of lost tokens, as a multiple of the stream's tokens

// Returns true if the engine can take the stream's blocks away now; used by planner and engine.
inline bool can_be_preempted(const Sequence& stream) {
  return stream.phase == StreamPhase::running && !stream.non_preemptible;
}

// Returns true if the planner may preempt the stream. `to_newcomer`: for a waiting stream; false: for a running stream.
inline bool may_be_victim(const Sequence& stream, bool to_newcomer) {
  if (!can_be_preempted(stream) || stream.computed < stream.progress.safe_until ||
      stream.progress.lost > kMaxLost * stream.size())
    return false;
  return !to_newcomer || stream.computed >= 2 * stream.progress.lost;
}
// Returns the number of computed tokens up to which a running stream is not preempted; their blocks are promised to it.
inline int64_t spared_tokens(const Sequence& stream) {
  return std::max(stream.progress.safe_until, (stream.progress.lost + kMaxLost - 1) / kMaxLost);
}

// Records a preemption. `loses`: the computed tokens are lost; false: they are stored in a tier.
inline void spare(Sequence& stream, bool loses) {
  stream.progress.safe_until = std::max(stream.progress.safe_until, stream.computed + 1);
  if (loses) stream.progress.lost += stream.to_recompute();
}

}  // namespace millrace
