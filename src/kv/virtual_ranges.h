// VirtualRanges: decides which block ids a pool of contiguous virtual ranges assigns, and which of them are backed by
// memory (vAttention, arXiv 2405.04437).
//
//   ids      | range 0: one stream's longest | range 1 | range 2 | ...        many more ids than memory
//              u u u u i i - - - - - - - - -   i i i -   u u - -
//
//   u  in use            has its pages
//   i  idle              unreferenced, but still has its pages: the next stream in this range reuses them
//   -  bare              no pages yet, or returned
//
// in use + idle = committed <= limit, and free = limit - in use: a free block may be idle or bare. Bare blocks take
// their memory from idle blocks elsewhere only once the limit is reached. One block is whole pages of every plane, so
// these counts are counts of pages. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"

namespace millrace {

using BlockId = int32_t;

// A stream's claim on a range; without one, the pool picks a block. Unused in a paged pool.
struct KvRange {
  int32_t index = -1;
};

class VirtualRanges {
 public:
  using GiveBack = std::function<void(BlockId first, int64_t count)>;

  VirtualRanges() = default;
  VirtualRanges(int64_t limit, int64_t range_blocks, int64_t ranges);

  int64_t ids() const { return static_cast<int64_t>(state_.size()); }
  int64_t in_use() const { return in_use_; }
  int64_t committed() const { return committed_; }

  // The next block of the range, or of a new one; in_use() must be below the limit. When memory is short, first calls
  // `give_back` with the idle blocks that lose their pages.
  BlockId take(KvRange& range, const GiveBack& give_back);
  void release(BlockId block);
  void close(KvRange& range);  // its blocks remain until they are released

  Result<void> check() const;  // verifies every count

 private:
  enum State : uint8_t { bare = 0, idle = 1, used = 3 };
  struct Range {
    int32_t next = 0;  // the owner's next position
    int32_t in_use = 0;
    int32_t idle = 0;
    bool open = false;
  };
  BlockId base(int32_t range) const { return static_cast<BlockId>(range * range_blocks_); }
  Range& range_of(BlockId block) { return ranges_[static_cast<size_t>(block / range_blocks_)]; }
  BlockId find(KvRange& range);
  BlockId find_anywhere();
  bool open(KvRange& range);
  void reclaim(const GiveBack& give_back);
  bool reclaim_from(int32_t range, const GiveBack& give_back);

  int64_t limit_ = 0;
  int64_t range_blocks_ = 1;
  int64_t in_use_ = 0;
  int64_t committed_ = 0;
  std::vector<State> state_;  // by id
  std::vector<Range> ranges_;
  std::vector<int32_t> empty_;  // closed ranges with nothing in use; reused from the back, whose pages are warm
  int32_t hand_ = 0;            // next range to reclaim idle blocks from
  BlockId cursor_ = 0;          // where the search for any block continues
};

}  // namespace millrace
