// VisibleSlots: iterates over the slots that a span's tokens see by the segments and block lists of a Visibility. It
// returns runs of adjacent slots in ascending order. Token trees and windows are handled elsewhere. MarkedSlots:
// iterates over the visible slots within the marked blocks of a pattern. Neither allocates.
#pragma once

#include <algorithm>
#include <span>

#include "attention/block_marks.h"
#include "flow/batch.h"
#include "kv/pool.h"

namespace millrace {

// The factor and the bias of some keys' scores, and the keys' document (KeySegment).
struct KeyBand {
  float scale = 1;
  float bias = 0;
  int32_t document = 0;
  bool operator==(const KeyBand&) const = default;
};

struct SlotRun {
  int64_t begin = 0;
  int64_t end = 0;
  KeyBand band;
};

// Returns the segments that a KV head of a layer sees.
inline std::span<const KeySegment> segments_of(const Batch& batch, const Visibility& v, const KvLayout& layout,
                                               int64_t layer, int64_t kv_head) {
  const int64_t list = v.segment_heads > 1 ? layout.heads_before(layer) + kv_head : 0;
  return std::span(batch.segments)
      .subspan(static_cast<size_t>(v.segments + list * v.segment_count), static_cast<size_t>(v.segment_count));
}

class VisibleSlots {
 public:
  // Iterates over the slots of [0, end) that `kv_head` sees; `segments`: segments_of().
  VisibleSlots(const Batch& batch, const Visibility& v, std::span<const KeySegment> segments, int64_t kv_head,
               int64_t block_tokens, int64_t end)
      : segment_(segments.data()),
        segments_end_(segment_ + v.segment_count),
        all_segments_(v.segment_count == 0),
        all_blocks_(v.list_count == 0),
        block_tokens_(block_tokens),
        end_(end) {
    if (all_blocks_) return;
    const BlockList& list = batch.block_lists[static_cast<size_t>(v.lists + std::min(kv_head, v.list_count - 1))];
    block_ = batch.listed_blocks.data() + list.begin;
    blocks_end_ = block_ + list.count;
  }

  // Sets `run` to the next run. Returns false if there is none.
  bool next(SlotRun& run) {
    while (begin_ < end_) {
      if ((!all_segments_ && segment_ == segments_end_) || (!all_blocks_ && block_ == blocks_end_)) break;
      const KeySegment segment = all_segments_ ? KeySegment{0, end_} : *segment_;
      const int64_t block = all_blocks_ ? 0 : *block_ * block_tokens_;
      const int64_t block_end = all_blocks_ ? end_ : block + block_tokens_;
      run = {std::max(segment.begin, block),
             std::min({segment.end, block_end, end_}),
             {segment.scale, segment.bias, segment.document}};
      begin_ = std::min(segment.end, block_end);
      if (!all_segments_ && segment.end <= block_end) ++segment_;
      if (!all_blocks_ && block_end <= segment.end) ++block_;
      if (run.begin < run.end) return true;
    }
    return false;
  }

 private:
  const KeySegment* segment_;
  const KeySegment* segments_end_;
  const int32_t* block_ = nullptr;
  const int32_t* blocks_end_ = nullptr;
  bool all_segments_, all_blocks_;
  int64_t block_tokens_, end_;
  int64_t begin_ = 0;  // slots before it are done
};

// A pattern cuts the visible slots into blocks, as if the stream held nothing else. Queries see the marked blocks, and
// every block from marks->end() on: their own.
struct MarkedBlocks {
  const BlockMarks* marks = nullptr;  // null: every block is marked
  int64_t block = 1;                  // tokens
};

class MarkedSlots {
 public:
  MarkedSlots(VisibleSlots slots, const MarkedBlocks& blocks) : slots_(slots), blocks_(blocks) {}

  // Sets `run` to the next run. Returns false if there is none.
  bool next(SlotRun& run) {
    if (!blocks_.marks) return slots_.next(run);
    while (rest_.begin < rest_.end || slots_.next(rest_)) {
      const int64_t block = rank_ / blocks_.block;
      const int64_t count = std::min(rest_.end - rest_.begin, (block + 1) * blocks_.block - rank_);
      run = rest_;
      run.end = run.begin + count;
      rest_.begin += count;
      rank_ += count;
      if (block >= blocks_.marks->end() || blocks_.marks->has(block)) return true;
    }
    return false;
  }

 private:
  VisibleSlots slots_;
  MarkedBlocks blocks_;
  SlotRun rest_;
  int64_t rank_ = 0;  // index of the first slot of the remaining run among the visible slots
};

}  // namespace millrace
