// Swap: moves the keys and values of preempted streams to a tier of other memory, and back when they are admitted
// again. Moves are tickets (kv/tiers/tier.h): the stream waits for its move, the other streams do not. A failed move
// makes the stream compute its tokens again.
//
// A recurrent state stays in its slot of the pool, which is host memory too. So do the blocks of layers with a window.
// The pool has slots, and such blocks, for as many swapped streams as may run.
//
//   running --move_out()--> swapping_out --poll()--> swapped --move_in()--> loading --poll()--> running
#pragma once

#include <memory>

#include "engine/block_ledger.h"
#include "engine/loop_context.h"

namespace millrace {

class Swap {
 public:
  // `tier` may be null: preempted streams are computed again.
  Swap(LoopContext& loop, StreamLists& lists, BlockLedger& ledger, std::unique_ptr<KvTier> tier)
      : loop_(loop), lists_(lists), ledger_(ledger), tier_(std::move(tier)) {}

  int64_t free_tokens() const { return tier_ ? tier_->free_tokens() : 0; }
  bool move_out(LiveStream& stream);  // false: not possible now, nothing has changed
  void move_in(LiveStream& stream);   // the stream runs at once where its bytes cannot be moved back
  void poll();                        // ends the moves that are ready
  void release(LiveStream& stream);   // releases the tier's data of the stream

 private:
  LoopContext& loop_;
  StreamLists& lists_;
  BlockLedger& ledger_;
  std::unique_ptr<KvTier> tier_;
  int64_t tickets_ = 0;  // open, of at most loop.limits.residents() recurrent streams
};

// Marks all keys and values of the stream as no longer stored, and none of its tokens as left out when they are
// computed again. Its evictor will make the same decisions again.
void compute_again(LiveStream& stream, EngineStats& stats);

}  // namespace millrace
