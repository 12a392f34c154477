#include "kv/head_cascade.h"

#include <algorithm>
#include <numeric>

namespace millrace {

HeadCascade::HeadCascade(int64_t layers, int64_t heads)
    : layers_(layers),
      heads_(heads),
      worth_(static_cast<size_t>(heads)),
      kept_(static_cast<size_t>(layers * heads)),
      order_(static_cast<size_t>(heads)) {}

void HeadCascade::reserve(int64_t drafted) { draft_worth_.reserve(static_cast<size_t>(drafted * heads_)); }

std::span<int64_t> HeadCascade::draft_worth(int64_t drafted) {
  draft_worth_.assign(static_cast<size_t>(drafted * heads_), 0);
  kept_drafts_ = 0;
  return draft_worth_;
}

void HeadCascade::keep_drafted() {
  const int64_t* row = draft_worth_.data() + kept_drafts_++ * heads_;
  for (size_t head = 0; head < worth_.size(); ++head) worth_[head] += row[head];
}

// A layer keeps no more heads than the one before it, so the most important heads are a cascade. Of equal ones the
// first.
void HeadCascade::decide(const TokenEvictor& evictor) {
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::sort(order_, [&](int32_t a, int32_t b) {
    const int64_t left = worth_[static_cast<size_t>(a)], right = worth_[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  });
  std::ranges::fill(kept_, uint8_t{0});
  for (int64_t layer = 0; layer < layers_; ++layer)
    for (int64_t i = 0; i < evictor.heads_of(layer, layers_, heads_); ++i)
      kept_[static_cast<size_t>(layer * heads_ + order_[static_cast<size_t>(i)])] = 1;
  decided_ = true;
}

void HeadCascade::clear() {
  decided_ = false;
  std::ranges::fill(worth_, int64_t{0});
}

}  // namespace millrace
