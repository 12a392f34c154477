#include "attention/key_worth.h"

#include <vector>

#include "attention/codec_tiles.h"
#include "kv/row_residuals.h"

namespace millrace {
namespace {

// The columns of a token's sums to which one head of a layer adds.
struct WorthColumns {
  int64_t first = 0, count = 1;
};

WorthColumns worth_columns(const KvPool& kv, const AttentionLayer& layer, const KeyWorthSpan& judged, int64_t kv_head) {
  if (judged.heads == 1) return {};
  // Whole layers have as many sums as heads, with or without a table for each head.
  const int64_t tables = kv.layout().tables_per_layer();
  if (judged.whole_layers) return {kv.layout().heads_before(layer.layer / tables * tables), layer.kv_heads * tables};
  return {kv.layout().heads_before(layer.layer) + kv_head, 1};
}

void add_to(const WorthColumns& columns, int64_t worth, int64_t* token) {
  for (int64_t i = columns.first; i < columns.first + columns.count; ++i) token[i] += worth;
}

}  // namespace

void add_key_worth(const Batch& batch, const AttentionLayer& layer, const KvPool& kv, const NewKeys& keys,
                   const KeyWorthSpan& judged) {
  const BatchSpan& span = batch.spans_of(layer.group)[static_cast<size_t>(judged.span)];
  const int64_t slots = span.first_slot + span.count, own = span.count - judged.drafted;
  for (int64_t head = 0; head < layer.kv_heads; ++head) {
    const WorthColumns columns = worth_columns(kv, layer, judged, head);
    for (int64_t i = judged.skipped; i < span.count; ++i) {
      const float* key = keys.k + (span.begin + i) * keys.stride + head * layer.head_dim;
      const int64_t worth = judged.evictor->key_worth({key, static_cast<size_t>(layer.head_dim)});
      const int64_t slot = span.first_slot + i;
      int64_t* token = i < own ? judged.worth.data() + slot * judged.heads
                               : judged.draft_worth.data() + ((i - own) * slots + slot) * judged.heads;
      add_to(columns, worth, token);
    }
  }
}

void add_document_worth(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, KvPool& kv,
                        const CodecTiles* tiles, const KeyWorthSpan& judged) {
  const BatchSpan& span = batch.spans_of(layer.group)[static_cast<size_t>(judged.span)];
  const int32_t* table = batch.tables(layer.group).data() + span.table;
  const RowCodec& codec = *kernels.find_codec(kv.layout().format);
  const int64_t block_tokens = kv.layout().block_tokens, dim = layer.head_dim;
  std::vector<float> row(static_cast<size_t>(dim));
  for (int64_t head = 0; head < layer.kv_heads; ++head) {
    const WorthColumns columns = worth_columns(kv, layer, judged, head);
    const float* block = nullptr;
    for (int64_t slot = 0; slot < judged.documents; ++slot) {
      const int64_t index = slot / block_tokens, within = slot % block_tokens;
      const float* key = row.data();
      if (tiles) {
        if (within == 0)
          block = (index + 1) * block_tokens <= judged.documents ? tiles->encoded_keys(table, head, index, 0)
                                                                 : tiles->raw_keys(span, head, index, 0);
        key = block + within * dim;
      } else {
        decode_with_residual(codec, kv.keys(layer.layer, table[index], head) + within * kv.row_bytes(layer.layer),
                             kv.residual_bytes(layer.layer), dim, row.data());
      }
      add_to(columns, judged.evictor->key_worth({key, static_cast<size_t>(dim)}),
             judged.worth.data() + slot * judged.heads);
    }
  }
}

}  // namespace millrace
