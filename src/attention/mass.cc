#include "attention/mass.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

// Softmax of one head's scores in place, over slots [first, slots).
void softmax(float* scores, int64_t first, int64_t slots) {
  const float most = *std::max_element(scores + first, scores + slots);
  double sum = 0;
  for (int64_t i = first; i < slots; ++i) sum += scores[i] = std::exp(scores[i] - most);
  for (int64_t i = first; i < slots; ++i) scores[i] = static_cast<float>(scores[i] / sum);
}

// Scores of all query heads of one KV head: each key is decoded once.
void score_group(const BatchSpan& span, const Batch& batch, const AttentionLayer& layer, const RowCodec& codec,
                 KvPool& kv, int64_t kv_head, const float* q, int64_t first, int64_t slots, float* key, float* scores) {
  const int64_t group = layer.heads / layer.kv_heads, dim = layer.head_dim, block_tokens = kv.layout().block_tokens;
  for (int64_t slot = first; slot < slots; ++slot) {
    const BlockId block = batch.tables(layer.group)[static_cast<size_t>(span.table + slot / block_tokens)];
    codec.decode(kv.keys(layer.layer, block, kv_head) + slot % block_tokens * kv.row_bytes(layer.layer), key, dim);
    for (int64_t g = 0; g < group; ++g) {
      const float* query = q + (kv_head * group + g) * dim;
      float sum = 0;
      for (int64_t d = 0; d < dim; ++d) sum += query[d] * key[d];
      scores[g * slots + slot] = layer.softcap > 0 ? layer.softcap * std::tanh(sum / layer.softcap) : sum;
    }
  }
}

}  // namespace

void observe_mass(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, KvPool& kv,
                  const float* q, AttentionMass& mass) {
  const RowCodec& codec = *kernels.find_codec(kv.layout().format);
  const int64_t block_tokens = kv.layout().block_tokens, group = layer.heads / layer.kv_heads;
  mass.mass.clear();
  for (int64_t index : mass.spans) {
    const BatchSpan& span = batch.spans_of(layer.group)[static_cast<size_t>(index)];
    const int64_t slots = span.first_slot + span.count;
    const int64_t first = layer.window > 0 ? std::max<int64_t>(0, slots - layer.window) : 0;
    const float* query = q + (span.begin + span.count - 1) * layer.heads * layer.head_dim;
    const size_t begin = mass.mass.size();
    mass.mass.resize(begin + static_cast<size_t>((slots + block_tokens - 1) / block_tokens));
    mass.scratch.resize(static_cast<size_t>(layer.head_dim + group * slots));
    float* key = mass.scratch.data();
    float* scores = key + layer.head_dim;
    for (int64_t kv_head = 0; kv_head < layer.kv_heads; ++kv_head) {
      score_group(span, batch, layer, codec, kv, kv_head, query, first, slots, key, scores);
      for (int64_t g = 0; g < group; ++g) {
        float* head = scores + g * slots;
        softmax(head, first, slots);
        for (int64_t slot = first; slot < slots; ++slot)
          mass.mass[begin + static_cast<size_t>(slot / block_tokens)] += head[slot] / static_cast<float>(layer.heads);
      }
    }
  }
}

}  // namespace millrace
