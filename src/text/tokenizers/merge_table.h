// MergeTable: the merge loop of byte-level BPE and SentencePiece BPE. Symbols are ints: token ids, or larger numbers
// for strings that occur only inside merges. A pair of symbols may have a rank. The pair with the lowest rank is merged
// first, the leftmost on ties (Sennrich et al. 2016, arXiv:1508.07909). The table is immutable after building and
// shared between threads; MergeScratch belongs to one call.
//
// Short words scan an array of ranks. Long words use a heap over a linked list, in O(n log n).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

// A run of bytes [previous piece's end, end) with its symbol; -1: no symbol, the piece is never merged.
struct MergePiece {
  int32_t symbol;
  uint32_t end;
};

struct MergeScratch {
  struct Candidate {
    uint32_t rank, position;
    int32_t left, right, merged;
  };
  std::vector<int32_t> previous, next;
  std::vector<Candidate> heap;
  uint64_t steps = 0;  // number of examined candidates, for complexity tests
};

class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  // Adds a pair of symbols >= 0. Keeps the first rank of a repeated pair.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t merged);
  void reserve(size_t pairs);

  // Merges `pieces` in place until no pair has a rank.
  void merge(std::vector<MergePiece>& pieces, MergeScratch& scratch) const;

  struct Entry {
    uint32_t rank;
    int32_t merged;
  };
  Entry find(int32_t left, int32_t right) const {
    if ((left | right) < 0 || slots_.empty()) return {kNoRank, -1};
    const uint64_t key = key_of(left, right);
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return {slots_[i].rank, slots_[i].merged};
      if (slots_[i].key == kFree) return {kNoRank, -1};
    }
  }
  size_t size() const { return used_; }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key;
    uint32_t rank;
    int32_t merged;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15ull;
    return (key ^ key >> 32) & mask_;
  }
  void grow(size_t slots);
  void merge_short(std::vector<MergePiece>& pieces, MergeScratch& scratch) const;
  void merge_long(std::vector<MergePiece>& pieces, MergeScratch& scratch) const;

  std::vector<Slot> slots_;  // size is a power of two
  size_t mask_ = 0;
  size_t used_ = 0;
};

}  // namespace millrace
