// In which order blocks that are written together get their slots: IMPRESS (Chen et al., FAST 2025) packs the keys and
// values that prompts look at into as few chunks of the disk as hold them.
//
//   put:    a3 a2 a1 a0 | b1 b0            as they leave the prefix index, the deepest of a prompt first
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

// Keeps chains together, in order of their first block's arrival; equal masses stay as they came.
void pack_by_importance(std::vector<StagedBlock>& blocks);

}  // namespace millrace
