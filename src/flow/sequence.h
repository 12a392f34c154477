// Sequence: the mutable state of one stream, owned by the engine thread. Plain data; the parts that act on it
// (planner, batch builder, commit) live in schedule/ and engine/.
//
//   waiting -> running -> (finished)          swapping_out, then swapped: its blocks are in a tier
//      ^          |                           loading: blocks are its own again, their bytes on the way
//      +----------+  preempted: tokens kept, blocks given back
#pragma once

#include <cstdint>
#include <vector>

#include "millrace/events.h"
#include "millrace/request.h"

namespace millrace {

// A request's answers are streams of their own; the first one has the request's id.
inline constexpr int kAnswerShift = 48;
inline RequestId answer_stream(RequestId request, int64_t answer) {
  return request | static_cast<RequestId>(answer) << kAnswerShift;
}
inline RequestId request_of(RequestId stream) { return stream & ((RequestId{1} << kAnswerShift) - 1); }
inline int64_t answer_of(RequestId stream) { return static_cast<int64_t>(stream >> kAnswerShift); }

enum class StreamPhase : uint8_t { waiting, running, swapping_out, swapped, loading };

struct Sequence {
  RequestId id = 0;     // of the stream: answer_stream(request, answer)
  int64_t arrival = 0;  // order of arrival among an engine's streams
  Request request;
  std::vector<TokenId> tokens;  // prompt, then what was generated
  int64_t prompt_tokens = 0;
  int64_t computed = 0;      // tokens whose keys and values are stored
  int64_t left_out = 0;      // of those before `computed`, left out of its attention: nothing of them is in its blocks
  int64_t went_without = 0;  // the most that was left out at any time: tokens were chosen so
  int64_t cached = 0;        // of those, how many came from the prefix index
  int64_t max_total = 0;     // prompt and generated tokens together never exceed this
  std::vector<int32_t> blocks;   // block table; covers at least `stored()` tokens
  int64_t reserved_blocks = 0;   // promised at admission: no other stream is admitted on them
  int64_t shared_blocks = 0;     // at the front, that other streams may hold too
  int64_t width = 1;             // streams that are admitted with it and grow as long: the beams of one search
  bool non_preemptible = false;  // once admitted it never gives way: what it is promised is all that it may need

  StreamPhase phase = StreamPhase::waiting;
  RequestId parent = 0;        // the first answer's stream, whose prompt blocks this one will share; 0: it is the first
  bool held_back = false;      // waits for the parent's prompt, or, running, for the donor's prefix
  bool caches = false;         // may find and leave prefix blocks, in its scope
  uint64_t prefix_scope = 0;   // whose prefixes those are
  RequestId donor = 0;         // running stream that computes the same beginning; 0: it waits for nobody
  int64_t donor_tokens = 0;    // of the donor's that it waits for
  int64_t donor_computed = 0;  // at the last look
  int64_t donor_still = 0;     // steps without any more
  int64_t preemptions = 0;
  int64_t furthest = 0;    // the most tokens that were computed at any time
  int64_t lost = 0;        // computed tokens that preemptions cost it
  int64_t safe_until = 0;  // no victim while fewer tokens are computed (schedule/preemption.h)
  // Nanoseconds of the engine's clock; 0: not yet, or none.
  int64_t submitted = 0;
  int64_t admitted = 0;  // for the first time
  int64_t first_token = 0;
  int64_t deadline = 0;
  int64_t time_limit = 0;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t stored() const { return computed - left_out; }
  int64_t generated() const { return size() - prompt_tokens; }
  int64_t remaining() const { return size() - computed; }  // tokens to run before the next one can be chosen
  bool decoding() const { return computed + 1 == size() && computed >= prompt_tokens; }
};

}  // namespace millrace
