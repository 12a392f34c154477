#include "attention/query_weights.h"

#include <algorithm>
#include <cmath>

#include "attention/codec_tiles.h"

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
                 KvPool& kv, const CodecTiles* tiles, int64_t kv_head, const float* q, int64_t first, int64_t slots,
                 float* row, float* scores) {
  const int64_t group = layer.heads / layer.kv_heads, dim = layer.head_dim, block_tokens = kv.layout().block_tokens;
  const int32_t* table = batch.tables(layer.group).data() + span.table;
  const float* block_keys = nullptr;
  for (int64_t slot = first; slot < slots; ++slot) {
    const int64_t block = slot / block_tokens, within = slot % block_tokens;
    const float* key = row;
    if (tiles) {
      if (slot == first || within == 0)
        block_keys = block < tiles->first_raw(slots - 1) ? tiles->encoded_keys(table, kv_head, block, 0)
                                                         : tiles->raw_keys(span, kv_head, block, 0);
      key = block_keys + within * dim;
    } else {
      codec.decode(kv.keys(layer.layer, table[block], kv_head) + within * kv.row_bytes(layer.layer), row, dim);
    }
    for (int64_t g = 0; g < group; ++g) {
      const float* query = q + (kv_head * group + g) * dim;
      float sum = 0;
      for (int64_t d = 0; d < dim; ++d) sum += query[d] * key[d];
      scores[g * slots + slot] = layer.softcap > 0 ? layer.softcap * std::tanh(sum / layer.softcap) : sum;
    }
  }
}

}  // namespace

void query_weights(const BatchSpan& span, const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels,
                   KvPool& kv, int64_t kv_head, const float* q, int64_t first, int64_t slots, float* scratch,
                   const CodecTiles* tiles) {
  float* weights = scratch + layer.head_dim;
  score_group(span, batch, layer, *kernels.find_codec(kv.layout().format), kv, tiles, kv_head, q, first, slots, scratch,
              weights);
  for (int64_t g = 0; g < layer.heads / layer.kv_heads; ++g) softmax(weights + g * slots, first, slots);
}

}  // namespace millrace
