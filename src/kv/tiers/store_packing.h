// The order in which blocks that are written together are assigned slots: IMPRESS (Chen et al., FAST 2025) packs the
// keys and values that prompts attend to into as few disk chunks as possible.
//
//   put:    a3 a2 a1 a0 | b1 b0            in eviction order, the deepest block of a prompt first
//   packed: a0 a2 a3 a1 | b0 b1            prompt by prompt, by falling attention mass
#pragma once

#include <vector>

#include "kv/prefix_key.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

struct StagedBlock {
  PrefixKey key, parent;
  std::vector<TokenId> tokens;
  float importance = 0;
  AlignedBuffer bytes;
};

// Keeps chains together, in the order in which their first blocks arrived; equal masses keep their order.
void pack_by_importance(std::vector<StagedBlock>& blocks);

}  // namespace millrace
