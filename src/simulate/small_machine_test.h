// A small node for tests of the simulation: 64 blocks of 4 tokens, 4 streams, 32 tokens a step.
#pragma once

#include "millrace/options.h"

namespace millrace::testing {

inline EngineOptions small_machine() {
  EngineOptions o;
  o.context = 64;
  o.kv_tokens = 256;
  o.block_tokens = 4;
  o.max_streams = 4;
  o.batch_tokens = 32;
  o.queue = 1000;
  return o;
}

}  // namespace millrace::testing
