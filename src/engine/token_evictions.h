// TokenEvictions: after each step, drops the tokens that the evictors of its streams choose, and returns their blocks.
#pragma once

#include <span>

#include "engine/block_ledger.h"
#include "engine/loop_context.h"

namespace millrace {

class TokenEvictions {
 public:
  TokenEvictions(LoopContext& loop, BlockLedger& ledger) : loop_(loop), ledger_(ledger) {}

  // After the streams' computed tokens are counted.
  void run(std::span<const StepWork> work);

 private:
  LoopContext& loop_;
  BlockLedger& ledger_;
};

}  // namespace millrace
