// Attention mass: the share of one query's attention that each block of keys receives. Used by evictors and token
// selection. Only observes the forward pass: it reads queries and keys and changes nothing that logits depend on.
#pragma once

#include <vector>

#include "attention/full.h"

namespace millrace {

// The request to observe attention in the next forward pass, and the result. Only the last query of each span is
// observed, in one layer. One layer suffices because neighbouring layers agree on which blocks matter; the cost is one
// query per chunk.
struct AttentionMass {
  int64_t layer = 0;
  std::vector<int64_t> spans;  // indices of batch spans; empty: nothing is computed
  std::vector<float> mass;     // [blocks of spans[0] | blocks of spans[1] | ...], each part sums to 1
  std::vector<float> scratch;  // [head_dim | slots]
};

// Fills mass.mass: the softmax over all visible slots, averaged over heads and summed by block, in slot order and thus
// independent of threads. `q`: [tokens, heads * head_dim], scaled and rotated. The batch's keys must already be stored.
void observe_mass(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, KvPool& kv,
                  const float* q, AttentionMass& mass);

}  // namespace millrace
