// Computes the attention weights of one token's query for observers of attention, because the kernels keep no weights.
// Slow: reads one key after the other.
#pragma once

#include "attention/full.h"

namespace millrace {

// Computes the weights of a KV head's query heads over the stream's slots [first, slots). `scratch`: [head_dim | group,
// slots]; weights of slots before `first` are not set. `q`: queries of all the token's heads, scaled and rotated.
// `tiles`: as in attend(). The token must be in the pass's batch, at slot `slots` - 1.
void query_weights(const BatchSpan& span, const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels,
                   KvPool& kv, int64_t kv_head, const float* q, int64_t first, int64_t slots, float* scratch,
                   const CodecTiles* tiles = nullptr);

}  // namespace millrace
