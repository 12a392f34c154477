// BlockLedger: records which streams hold which blocks of the KV pool, and which slots of recurrent states. Blocks
// enter and leave a stream's block table only here, so blocks without a holder can be counted at any time, and the
// counts checked. If no block is free, the prefix index evicts one.
//
//   pool   [ free | in the prefix index only | held by streams, in the prefix index or not ]
//          '------ unheld_blocks() ---------'  '----------- holders(block) > 0 -----------'
//
// The further groups of the pool (kv/window_groups.h) never run out of blocks before the first one does
// (window_group_blocks()); counts and holders are those of the first group. Only the first group loses tokens that an
// evictor drops; in the others slots are counted as if none were dropped. If every layer has its own blocks
// (KvLayout::groups), counts and holders are those of all layers.
#pragma once

#include <span>
#include <vector>

#include "engine/stream_lists.h"
#include "kv/pool.h"
#include "kv/prefix_index.h"

namespace millrace {

class BlockLedger {
 public:
  // Both outlive the ledger. `index` may be null.
  BlockLedger(KvPool& pool, PrefixIndex* index);

  // Allocates room in the stream's tables for `stored` tokens, and for `tokens` in the groups of layers with windows,
  // so that no later step allocates memory for them.
  void prepare(LiveStream& stream, int64_t stored, int64_t tokens) const;
  // Extends the stream's block tables until they cover `tokens` tokens, and assigns a state if the model has recurrent
  // layers. Returns false if there are not enough blocks; those that were found stay in the tables.
  bool reserve(LiveStream& stream, int64_t tokens);
  // Returns blocks that the stream's next token, and later ones, do not see. Does nothing without layers with windows.
  void give_back(LiveStream& stream);
  // Returns blocks at the end of the table that neither stored tokens nor the stream's promise need.
  void trim(LiveStream& stream);
  // The block table of a stream without blocks becomes `blocks`, which other streams may hold too. The caller has taken
  // a reference to each. If the prefix has a recurrent state, the stream's state becomes a copy of it. Returns false,
  // and releases the blocks, if there is no slot for the state.
  bool adopt(LiveStream& stream, const PrefixMatch& prefix);
  void adopt(LiveStream& stream, std::span<const BlockId> blocks) {
    adopt(stream, PrefixMatch{{blocks.begin(), blocks.end()}, {}, PrefixStates::kNone});
  }
  // Appends blocks to the stream's table, which other streams may hold too. The caller has taken a reference to each.
  void extend(LiveStream& stream, std::span<const BlockId> blocks);
  // Returns all blocks of the stream's table behind the first `blocks`. Its pool has one group.
  void cut(LiveStream& stream, int64_t blocks);
  // A stream without blocks takes over the keys and values of the first `tokens` tokens, which the owner has, too. Full
  // blocks are shared, the partly filled one is copied. If there is no block for the copy, its tokens remain to be
  // computed. A recurrent state covers all the owner's tokens; if `tokens` is fewer, nothing is taken over. With a
  // codec, fewer tokens take over only full blocks, or nothing if the codec keeps raw rows of older tokens. `state`: a
  // slot with the recurrent state behind `tokens` tokens; -1: there is none.
  void share(Sequence& owner, LiveStream& stream, int64_t tokens, StateId state = -1);
  // Returns true if the owner still has all blocks that the token after the first `tokens` sees.
  bool may_share(const Sequence& owner, int64_t tokens) const;
  // Keeps only the slots that the stream's evictor has just kept, and returns the blocks that become empty. The stream
  // shares no block. The groups of layers with windows keep theirs.
  void compact(LiveStream& stream);
  // Called before a chunk of `own` tokens and `drafted` drafted tokens runs. In models with recurrent layers, assigns
  // one slot to the state after the last own token and one to the state after each drafted token except the last.
  // Returns the number of drafted tokens that may run, which is limited by the free ones of StatePool::marks().
  int64_t mark_states(LiveStream& stream, int64_t own, int64_t drafted);
  // Called after the chunk has run. The state after token `row` of the chunk becomes the stream's state, and the other
  // slots are released. If `row` has no slot, the stream keeps the state after the chunk's last token.
  void keep_state(LiveStream& stream, int64_t row);
  // Returns the stream's blocks and its state to the pool.
  void release(LiveStream& stream);
  // Only the blocks of the first group: those of the others, and the state, of a swapped stream stay where they are.
  void release_blocks(LiveStream& stream);

  int64_t unheld_blocks() const { return pool_.total_blocks() - held_blocks_; }
  int64_t holders(BlockId block) const { return holders_[static_cast<size_t>(block)]; }
  // Checks that free + held == total, that every block is referenced once by each stream and the prefix index that hold
  // it, and that a block of several streams is marked as shared in each of them. Errors: internal.
  Result<void> check(const StreamTable& streams) const;

 private:
  bool hold_state(Sequence& stream);
  bool reserve_windows(LiveStream& stream, int64_t tokens);
  void share_group(int64_t group, Sequence& owner, Sequence& stream, int64_t full, int64_t tokens);
  void release_windows(LiveStream& stream);
  void release_marks(Sequence& stream);
  Result<void> check_windows(const StreamTable& streams) const;
  void hold(BlockId block);
  void drop(BlockId block);
  // Holds a block of a group, whose holders are counted or not.
  void hold_in(int64_t group, BlockId block);
  void drop_in(int64_t group, BlockId block);

  KvPool& pool_;
  PrefixIndex* index_;
  std::vector<int32_t> holders_;  // streams, of each block
  int64_t held_blocks_ = 0;       // blocks with at least one
  int64_t held_marks_ = 0;        // slots that mark_states() has assigned
};

}  // namespace millrace
