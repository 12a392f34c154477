// The weight that queries give the keys of one whole block, for patterns that find blocks by the attention of earlier
// queries (attention/block_lines.h, attention/block_sums.h).
#pragma once

#include "attention/partial.h"
#include "attention/visible_keys.h"

namespace millrace {

// Writes the logarithm of the sum of the weights that a query's heads give the keys of a complete block, before the
// softmax divides: a float for each row of [queries, group], at a distance of `stride` floats. `unit`: the query of the
// newest slot. `q`: [queries, group, head_dim]. `partial`: as many rows.
void weigh_block(const VisibleUnit& unit, int64_t pattern_block, int64_t block, const float* q, int64_t queries,
                 const Partial& partial, const uint8_t** pointers, float* logs, int64_t stride);

}  // namespace millrace
