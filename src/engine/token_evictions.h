// TokenEvictions: drops the tokens that the evictors of running streams choose, and returns their blocks.
#pragma once

#include "engine/block_ledger.h"
#include "engine/loop_context.h"

namespace millrace {

class TokenEvictions {
 public:
  TokenEvictions(LoopContext& loop, BlockLedger& ledger) : loop_(loop), ledger_(ledger) {}

  // Called whenever more of the stream's tokens are counted as computed. Drops tokens where a decision is due. No chunk
  // crosses that point, so all slots then hold tokens of the stream: rejected drafted tokens have none there.
  void run(LiveStream& stream);

 private:
  LoopContext& loop_;
  BlockLedger& ledger_;
};

// Copies what planner and ledger need of the evictor's state, and what the tokens behind documents see of the slots
// that it leaves.
void note_eviction(LiveStream& stream);

}  // namespace millrace
