// The attention weights of one token's query, for whoever observes attention: the kernels keep none. Slow: one key
// after the other.
#pragma once

#include "attention/full.h"

namespace millrace {

// Of the heads of one KV head over the stream's slots [first, slots): `scratch` is [head_dim | group, slots], of which
// weights before `first` are not set. `q`: of all the token's heads, scaled and rotated. `tiles`: as of attend(); the
// token is at the last slot, and in the batch of the pass.
void query_weights(const BatchSpan& span, const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels,
                   KvPool& kv, int64_t kv_head, const float* q, int64_t first, int64_t slots, float* scratch,
                   const CodecTiles* tiles = nullptr);

}  // namespace millrace
