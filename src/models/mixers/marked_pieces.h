// Marks of recurrent states (flow/state_mark.h). A unit of work updates one part of a stream's state for all tokens of
// a span. It runs the span in pieces that end at the marks, and copies its part into the mark's slot after each piece.
// A tree of tokens runs in the same way: a token whose parent is not the token before it first restores the copy taken
// after its parent. So the token before a tree and every token of the tree except the last must have a mark.
#pragma once

#include <algorithm>
#include <bit>

#include "models/forward_context.h"
#include "models/mixers/mixer.h"

namespace millrace {

// The values of a layer's state that one unit of work updates: `rows` rows of `width` values, one every `stride`.
struct StatePart {
  int64_t first = 0;  // index in the layer's state
  int64_t width = 0;
  int64_t rows = 1;
  int64_t stride = 0;
};

inline float* state_values(const MixerCall& call, StateId slot) {
  return call.context.kv().states().values(call.context.first_kv_layer + call.index, slot);
}

// Index in the span of the token that the span's token `row` follows.
inline int64_t row_before(const Batch& batch, const BatchSpan& span, int64_t row) {
  if (span.visibility < 0) return row - 1;
  const Visibility& visible = batch.visibility[static_cast<size_t>(span.visibility)];
  const int64_t tree = visible.tree_slot - span.first_slot, index = row - tree;
  if (visible.tree_tokens == 0 || index < 0) return row - 1;
  const uint64_t path = batch.ancestors[static_cast<size_t>(visible.ancestors + index)];
  return tree - 1 + std::bit_width(path & ~(uint64_t{1} << index));
}

// Calls run(piece) for the span's pieces in order; each is a span of the same stream. A stream whose first token is in
// a piece begins with an empty state, which run() sets.
template <typename Run>
void run_marked_pieces(const MixerCall& call, const BatchSpan& span, const StatePart& part, const Run& run) {
  const std::span<const StateMark> marks = call.batch.marks_of(span);
  const auto copy = [&](StateId source, StateId target) {
    const float* from = state_values(call, source) + part.first;
    float* to = state_values(call, target) + part.first;
    for (int64_t i = 0; i < part.rows; ++i) std::copy_n(from + i * part.stride, part.width, to + i * part.stride);
  };
  BatchSpan piece = span;
  const auto run_until = [&](int64_t row) {
    piece.count = span.begin + row - piece.begin;
    if (piece.count == 0) return;
    const int64_t first = piece.begin - span.begin, before = row_before(call.batch, span, first);
    if (before != first - 1) copy(std::ranges::find(marks, before, &StateMark::row)->slot, span.state);
    run(piece);
    piece.begin += piece.count;
    piece.first_slot += piece.count;
  };
  for (const StateMark& mark : marks) {
    run_until(mark.row + 1);
    copy(span.state, mark.slot);
  }
  run_until(span.count);
}

}  // namespace millrace
