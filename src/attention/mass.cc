#include "attention/mass.h"

#include "attention/query_weights.h"

namespace millrace {
void observe_mass(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, KvPool& kv,
                  const float* q, AttentionMass& mass) {
  const int64_t block_tokens = kv.layout().block_tokens, group = layer.heads / layer.kv_heads;
  mass.mass.clear();
  for (int64_t index : mass.spans) {
    const BatchSpan& span = batch.spans_of(layer.group)[static_cast<size_t>(index)];
    const int64_t slots = span.first_slot + span.count;
    const int64_t first = layer.window > 0 ? std::max<int64_t>(0, slots - layer.window) : 0;
    const float* query = q + (span.begin + span.count - 1) * layer.q_width();
    const size_t begin = mass.mass.size();
    mass.mass.resize(begin + static_cast<size_t>((slots + block_tokens - 1) / block_tokens));
    mass.scratch.resize(static_cast<size_t>(layer.head_dim + group * slots));
    const float* weights = mass.scratch.data() + layer.head_dim;
    for (int64_t kv_head = 0; kv_head < layer.kv_heads; ++kv_head) {
      query_weights(span, batch, layer, kernels, kv, kv_head, query, first, slots, mass.scratch.data());
      for (int64_t g = 0; g < group; ++g)
        for (int64_t slot = first; slot < slots; ++slot)
          mass.mass[begin + static_cast<size_t>(slot / block_tokens)] +=
              weights[g * slots + slot] / static_cast<float>(layer.heads);
    }
  }
}

}  // namespace millrace
