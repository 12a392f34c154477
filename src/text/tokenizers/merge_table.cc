#include "text/tokenizers/merge_table.h"

#include <algorithm>

#include "base/work_limits.h"
#include "text/work_count.h"

namespace millrace {
namespace {

constexpr uint32_t kMergesPerLook = 4096;  // between calls of work_is_over()
constexpr size_t kShortWord = 40;          // symbols; above it the heap is faster than repeated scans

// Heap order: std::*_heap keeps the greatest on top, so "less" means a worse candidate.
bool worse(const MergeScratch::Candidate& a, const MergeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

void MergeTable::grow(size_t slots) {
  std::vector<Slot> old(slots, Slot{kFree, 0, 0});
  old.swap(slots_);
  mask_ = slots - 1;
  for (const Slot& slot : old) {
    if (slot.key == kFree) continue;
    size_t i = slot_of(slot.key);
    while (slots_[i].key != kFree) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
}

void MergeTable::reserve(size_t pairs) {
  size_t slots = 64;
  while (slots < pairs * 2) slots *= 2;
  if (slots > slots_.size()) grow(slots);
}

void MergeTable::add(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
  if ((used_ + 1) * 2 > slots_.size()) grow(std::max<size_t>(64, slots_.size() * 2));
  const uint64_t key = key_of(left, right);
  size_t i = slot_of(key);
  for (; slots_[i].key != kFree; i = (i + 1) & mask_) {
    if (slots_[i].key == key) return;
  }
  slots_[i] = {key, rank, merged};
  ++used_;
}

void MergeTable::merge(std::vector<MergePiece>& pieces, MergeScratch& scratch) const {
  if (pieces.size() < 2) return;
  const uint64_t before = scratch.steps;
  if (pieces.size() <= kShortWord)
    merge_short(pieces, scratch);
  else
    merge_long(pieces, scratch);
  text_work += static_cast<int64_t>(scratch.steps - before);
}

void MergeTable::merge_short(std::vector<MergePiece>& pieces, MergeScratch& scratch) const {
  size_t n = pieces.size();
  uint32_t ranks[kShortWord];  // of the pair (i, i + 1)
  int32_t merged[kShortWord];
  const auto look_up = [&](size_t i) {
    const Entry entry = find(pieces[i].symbol, pieces[i + 1].symbol);
    ranks[i] = entry.rank;
    merged[i] = entry.merged;
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    scratch.steps += n;
    if (ranks[best] == kNoRank) break;
    pieces[best] = {merged[best], pieces[best + 1].end};
    for (size_t i = best + 1; i + 1 < n; ++i) {
      pieces[i] = pieces[i + 1];
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    --n;
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  pieces.resize(n);
}

void MergeTable::merge_long(std::vector<MergePiece>& pieces, MergeScratch& scratch) const {
  const auto n = static_cast<int32_t>(pieces.size());
  auto& heap = scratch.heap;
  scratch.previous.resize(pieces.size());
  scratch.next.resize(pieces.size());
  heap.clear();
  const auto candidate = [&](int32_t left, int32_t right, std::vector<MergeScratch::Candidate>& into) {
    ++scratch.steps;
    const Entry entry = find(pieces[left].symbol, pieces[right].symbol);
    if (entry.rank == kNoRank) return false;
    into.push_back({entry.rank, static_cast<uint32_t>(left), pieces[left].symbol, pieces[right].symbol, entry.merged});
    return true;
  };
  for (int32_t i = 0; i < n; ++i) {
    scratch.previous[i] = i - 1;
    scratch.next[i] = i + 1 < n ? i + 1 : -1;
    if (i + 1 < n) candidate(i, i + 1, heap);
  }
  std::make_heap(heap.begin(), heap.end(), worse);
  constexpr int32_t kGone = -2;  // symbol of a piece that was merged into its left neighbour
  for (uint32_t step = 1; !heap.empty(); ++step) {
    if (step % kMergesPerLook == 0 && work_is_over()) break;
    std::pop_heap(heap.begin(), heap.end(), worse);
    const MergeScratch::Candidate best = heap.back();
    heap.pop_back();
    ++scratch.steps;
    const auto left = static_cast<int32_t>(best.position);
    const int32_t right = scratch.next[left];
    // Either side may have changed since this candidate was queued.
    if (right < 0 || pieces[left].symbol != best.left || pieces[right].symbol != best.right) continue;
    pieces[left] = {best.merged, pieces[right].end};
    pieces[right].symbol = kGone;
    const int32_t after = scratch.next[right];
    scratch.next[left] = after;
    if (after >= 0) scratch.previous[after] = left;
    const int32_t before = scratch.previous[left];
    if (before >= 0 && candidate(before, left, heap)) std::push_heap(heap.begin(), heap.end(), worse);
    if (after >= 0 && candidate(left, after, heap)) std::push_heap(heap.begin(), heap.end(), worse);
  }
  std::erase_if(pieces, [](const MergePiece& piece) { return piece.symbol == kGone; });
}

}  // namespace millrace
