#include "kv/virtual_ranges.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr int64_t kReclaimBlocks = 16;  // per reclaim, with one system call per plane

}  // namespace

VirtualRanges::VirtualRanges(int64_t limit, int64_t range_blocks, int64_t ranges)
    : limit_(limit),
      range_blocks_(range_blocks),
      state_(static_cast<size_t>(range_blocks * ranges), State::bare),
      ranges_(static_cast<size_t>(ranges)) {
  for (int64_t i = ranges; i-- > 0;) empty_.push_back(static_cast<int32_t>(i));
}

bool VirtualRanges::open(KvRange& range) {
  if (empty_.empty()) return false;
  range.index = empty_.back();
  empty_.pop_back();
  Range& r = ranges_[static_cast<size_t>(range.index)];
  r.open = true;
  r.next = 0;
  return true;
}

void VirtualRanges::close(KvRange& range) {
  if (range.index < 0) return;
  Range& r = ranges_[static_cast<size_t>(range.index)];
  r.open = false;
  if (r.in_use == 0) empty_.push_back(range.index);
  range.index = -1;
}

BlockId VirtualRanges::find(KvRange& range) {
  while (range.index >= 0 || open(range)) {
    Range& r = ranges_[static_cast<size_t>(range.index)];
    const BlockId first = base(range.index);
    while (r.next < range_blocks_ && state_[static_cast<size_t>(first + r.next)] == used) ++r.next;
    if (r.next < range_blocks_) return first + r.next++;
    close(range);
  }
  return find_anywhere();
}

// No range is empty: take any idle or bare block, only not contiguous.
BlockId VirtualRanges::find_anywhere() {
  BlockId other = -1;
  for (size_t i = 0; i < state_.size(); ++i) {
    cursor_ = static_cast<size_t>(cursor_) + 1 < state_.size() ? cursor_ + 1 : 0;
    if (state_[static_cast<size_t>(cursor_)] == used) continue;
    if (!range_of(cursor_).open) return cursor_;
    other = cursor_;
  }
  return other;
}

BlockId VirtualRanges::take(KvRange& range, const GiveBack& give_back) {
  const BlockId block = find(range);
  State& state = state_[static_cast<size_t>(block)];
  Range& r = range_of(block);
  if (state == bare) {
    if (committed_ == limit_) reclaim(give_back);
    ++committed_;
  } else {
    --r.idle;
  }
  state = used;
  ++r.in_use;
  ++in_use_;
  return block;
}

void VirtualRanges::release(BlockId block) {
  const auto index = static_cast<int32_t>(block / range_blocks_);
  Range& r = ranges_[static_cast<size_t>(index)];
  state_[static_cast<size_t>(block)] = idle;
  ++r.idle;
  --r.in_use;
  --in_use_;
  if (r.open && block == base(index) + r.next - 1) --r.next;  // released at the end of the range: it grows there again
  if (!r.open && r.in_use == 0) empty_.push_back(index);
}

// Reclaims from ranges without an owner first; the idle blocks of owned ranges are about to be reused by their owners.
void VirtualRanges::reclaim(const GiveBack& give_back) {
  for (const bool open : {false, true}) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      hand_ = static_cast<size_t>(hand_) + 1 < ranges_.size() ? hand_ + 1 : 0;
      const Range& r = ranges_[static_cast<size_t>(hand_)];
      if (r.open == open && r.idle > 0 && reclaim_from(hand_, give_back)) return;
    }
  }
}

bool VirtualRanges::reclaim_from(int32_t range, const GiveBack& give_back) {
  const auto first = state_.begin() + base(range);
  const auto begin = std::find(first, first + range_blocks_, idle);
  auto end = begin;
  while (end != first + range_blocks_ && *end == idle && end - begin < kReclaimBlocks) *end++ = bare;
  const int64_t count = end - begin;
  if (count == 0) return false;
  ranges_[static_cast<size_t>(range)].idle -= static_cast<int32_t>(count);
  committed_ -= count;
  give_back(static_cast<BlockId>(begin - state_.begin()), count);
  return true;
}

Result<void> VirtualRanges::check() const {
  int64_t in_use = 0, idle_blocks = 0;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const auto first = state_.begin() + base(static_cast<int32_t>(i));
    const int64_t u = std::count(first, first + range_blocks_, used),
                  w = std::count(first, first + range_blocks_, idle);
    if (u != ranges_[i].in_use || w != ranges_[i].idle)
      return Error::internal(fmt::format("KV range {}: {} in use and {} idle, {} and {} counted", i, u, w,
                                         ranges_[i].in_use, ranges_[i].idle));
    in_use += u;
    idle_blocks += w;
  }
  if (in_use != in_use_ || in_use + idle_blocks != committed_ || committed_ > limit_)
    return Error::internal(fmt::format("KV ranges: {} in use, {} idle; {} in use, {} committed of {} counted", in_use,
                                       idle_blocks, in_use_, committed_, limit_));
  return {};
}

}  // namespace millrace
