// Attention mass: how much of one query's attention each block of keys gets; what evictors and token choosers ask
// about. An observation beside the forward pass: it reads queries and keys and changes nothing that logits depend on.
#pragma once

#include <vector>

#include "attention/full.h"

namespace millrace {

// What to look at in the next forward pass, and what was seen. Only the last query of each span is looked at, in one
// layer: neighbouring layers agree on what matters, and this way it costs one query in a whole chunk.
struct AttentionMass {
  int64_t layer = 0;
  std::vector<int64_t> spans;  // of the batch; none: nothing is computed
  std::vector<float> mass;     // [blocks of spans[0] | blocks of spans[1] | ...], each part sums to 1
  std::vector<float> scratch;  // [head_dim | slots]
};

// q [tokens, heads * head_dim], scaled and rotated; the batch's keys are stored already. Fills mass.mass: the softmax
// over all visible slots, averaged over heads, summed by block. In order of slots, so that it never depends on threads.
void observe_mass(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, KvPool& kv,
                  const float* q, AttentionMass& mass);

}  // namespace millrace
