// KeyLifetimes: the keys that gates hide in one layer, and the pruned heads, for each stream. A token's query sees a
// stored key until a token of the text ends it; from then on no query sees it. If a token ends its own key, it attends
// to nothing.
//
//   key       0  1  2  3  4        the token that ends it: 3 never 2 never never
//   token 3 sees .  1  .  3        token 2 attends to nothing: its key ends with itself
#pragma once

#include <cstdint>
#include <vector>

#include "flow/batch.h"

namespace millrace {

struct KeyLifetimes {
  static constexpr int32_t kNever = INT32_MAX;

  // Keys of one span of the batch.
  struct Span {
    const int32_t* ends = nullptr;   // [slots], index in the text of the token that ends a key; null: no key ends
    const float* weights = nullptr;  // [slots], factor of the layer's output of each token; null: 1
    int64_t shift = 0;               // a token's index in the text minus its slot, the same for all tokens of the span
    // [kv_heads], 0: the head does not attend and its outputs are zeros; null: all heads attend.
    const uint8_t* heads = nullptr;

    bool hides() const { return ends != nullptr; }
    bool attends_with(int64_t kv_head) const { return !heads || heads[kv_head] != 0; }

    bool sees(int64_t query, int64_t slot) const { return query + shift < ends[slot]; }
    bool attends(int64_t slot) const { return sees(slot, slot); }
  };

  std::vector<Span> spans;  // by BatchSpan::chunk; empty: no stream of the batch has gates or pruned heads

  Span of(const BatchSpan& span) const { return spans.empty() ? Span{} : spans[static_cast<size_t>(span.chunk)]; }
};

}  // namespace millrace
