// BlockLedger: which streams hold which blocks of the KV pool. Blocks enter and leave a stream's block table here only,
// so that those without a holder can be counted at any time, and the counts checked. Where no block is free, the prefix
// index evicts one.
//
//   pool   [ free | in the prefix index only | held by streams, in the prefix index or not ]
//          '------ unheld_blocks() ---------'  '----------- holders(block) > 0 -----------'
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

  // Extends the stream's block table until it covers `tokens` tokens. False: there are not enough blocks; those that
  // were found stay in the table.
  bool reserve(LiveStream& stream, int64_t tokens);
  // Returns blocks at the end of the table that neither stored tokens nor the stream's promise need.
  void trim(LiveStream& stream);
  // The block table of a stream without blocks becomes `blocks`, which other streams may hold too. The caller has taken
  // a reference to each.
  void adopt(LiveStream& stream, std::span<const BlockId> blocks);
  // A stream without blocks takes over the keys and values of the first `tokens` tokens, which are the owner's too:
  // full blocks are shared, the partly filled one is copied. Where there is no block for the copy, its tokens remain to
  // be computed.
  void share(Sequence& owner, LiveStream& stream, int64_t tokens);
  // Keeps only these slots of a stream that shares no block, ascending, and returns the blocks that become empty.
  void compact(LiveStream& stream, std::span<const int32_t> kept);
  // Returns the stream's blocks to the pool.
  void release(LiveStream& stream);

  int64_t unheld_blocks() const { return pool_.total_blocks() - held_blocks_; }
  int64_t holders(BlockId block) const { return holders_[static_cast<size_t>(block)]; }
  // free + held == total, every block is referenced once by each stream and the prefix index that hold it, and a block
  // of several streams is marked as shared in each of them. Errors: internal.
  Result<void> check(const StreamTable& streams) const;

 private:
  void hold(BlockId block);
  void drop(BlockId block);

  KvPool& pool_;
  PrefixIndex* index_;
  std::vector<int32_t> holders_;  // streams, of each block
  int64_t held_blocks_ = 0;       // blocks with at least one
};

}  // namespace millrace
