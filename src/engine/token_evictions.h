// TokenEvictions: drops the tokens that the evictors of running streams choose, and returns their blocks to the pool.
#pragma once

#include "engine/block_ledger.h"
#include "engine/loop_context.h"

namespace millrace {

class TokenEvictions {
 public:
  TokenEvictions(LoopContext& loop, BlockLedger& ledger) : loop_(loop), ledger_(ledger) {}

  // Called whenever the number of the stream's computed tokens has grown. Drops tokens if a decision is due. A chunk
  // never extends beyond the token at which a decision is due. So all slots then hold tokens of the stream, and none
  // holds a rejected drafted token.
  void run(LiveStream& stream);

 private:
  LoopContext& loop_;
  BlockLedger& ledger_;
};

// Copies the parts of the evictor's state that planner and ledger need to the stream. Also records which of the
// remaining slots the tokens behind the documents see.
void note_eviction(LiveStream& stream);

}  // namespace millrace
