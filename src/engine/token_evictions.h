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

// Copies the parts of the evictor's state that planner and ledger need, and the slots that tokens behind documents see
// among the remaining ones.
void note_eviction(LiveStream& stream);

}  // namespace millrace
