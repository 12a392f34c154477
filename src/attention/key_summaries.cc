#include "attention/key_summaries.h"

#include <fmt/format.h>

#include <numeric>

#include "attention/block_lines.h"
#include "attention/block_sparse.h"
#include "attention/block_sums.h"
#include "attention/codec_tiles.h"
#include "kv/row_residuals.h"

namespace millrace {
namespace {

// `tiles`: of a pool with a codec.
void summarize_block(const int32_t* table, int64_t layer, int64_t kv_head, const RowCodec& codec, KvPool& kv,
                     const CodecTiles* tiles, int worker, const DynamicPattern& pattern, int64_t block) {
  const KvLayer& own = kv.layout().layers[static_cast<size_t>(layer)];
  const int64_t block_tokens = kv.layout().block_tokens, row_bytes = kv.row_bytes(layer);
  const PatternPlace at{layer, kv_head, own.kv_heads};
  const auto dim = static_cast<size_t>(own.head_dim);
  const int64_t each = pattern.block() / block_tokens;
  const std::span<float> summary(key_summary(kv, layer, kv_head, table, block, pattern.block()),
                                 static_cast<size_t>(pattern.summary_floats(own.head_dim)));
  if (summary.empty()) return;
  float key[kMaxDynamicDim];
  pattern.start_summary(summary);
  for (int64_t b = block * each; b < (block + 1) * each; ++b) {
    if (tiles) {
      const float* keys = tiles->encoded_keys(table, kv_head, b, worker);
      for (int64_t i = 0; i < block_tokens; ++i) pattern.add_key(at, {keys + i * own.head_dim, dim}, summary);
      continue;
    }
    const uint8_t* rows = kv.keys(layer, table[b], kv_head);
    for (int64_t i = 0; i < block_tokens; ++i) {
      decode_with_residual(codec, rows + i * row_bytes, kv.residual_bytes(layer), own.head_dim, key);
      pattern.add_key(at, {key, dim}, summary);
    }
  }
}

}  // namespace

Result<void> add_key_summaries(KvLayout& layout, const AttentionPattern* pattern, int64_t context) {
  const DynamicPattern* dynamic = dynamic_pattern(pattern);
  if (!dynamic) return {};
  if (layout.values() != layout.format)
    return Error::unsupported(fmt::format("attention {}: needs keys and values of one format, not {}", pattern->text(),
                                          layout.format_name()));
  const auto layers = layout.layers;
  const int64_t unit = std::lcm<int64_t>(2, layout.format->block_values);
  for (int64_t i = 0; i < std::ssize(layers); ++i) {
    const KvLayer& layer = layers[static_cast<size_t>(i)];
    const bool sees_all = layer.kv_heads > 0 && (layer.window <= 0 || layer.window >= context);
    const int64_t dim = std::min(layer.head_dim, kMaxDynamicDim);
    const int64_t bytes =
        4 * (dynamic->summary_floats(dim) + line_floats(*dynamic, layer.heads_each, dim) + sum_floats(*dynamic));
    int64_t width = unit;  // of a row, so that the rows of a KV block are as many bytes
    while (layout.block_tokens * layout.format->row_bytes(width) < bytes) width += unit;
    layout.layers.push_back(sees_all ? KvLayer{.kv_heads = layer.kv_heads,
                                               .head_dim = width,
                                               .values_in_keys = true,
                                               .side = KvSide{.layer = i, .rows = KvSide::Rows::blocks}}
                                     : KvLayer{.side = KvSide{.layer = i}});
  }
  return {};
}

void summarize_keys(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool,
                    KvPool& kv, int64_t context, const CodecTiles* tiles) {
  const DynamicPattern* pattern = dynamic_pattern(pattern_of(layer, context));
  if (!pattern) return;
  const RowCodec& codec = *kernels.find_codec(kv.layout().format);
  const int64_t block = pattern->block();
  const std::vector<BatchSpan>& spans = batch.spans_of(layer.group);
  const auto completed = [&](const BatchSpan& span) {
    return (span.first_slot + span.count) / block - span.first_slot / block;
  };
  int64_t blocks = 0;
  for (const BatchSpan& span : spans) blocks += completed(span);
  if (blocks == 0) return;
  pool.parallel_for(blocks * layer.kv_heads, [&](int64_t index, int worker) {
    const int64_t kv_head = index % layer.kv_heads;
    int64_t left = index / layer.kv_heads;
    size_t s = 0;
    while (left >= completed(spans[s])) left -= completed(spans[s++]);
    summarize_block(batch.tables(layer.group).data() + spans[s].table, layer.layer, kv_head, codec, kv, tiles, worker,
                    *pattern, spans[s].first_slot / block + left);
  });
}

void summarize_again(std::span<const BlockId> table, int64_t begin, int64_t end, const AttentionPattern* chosen,
                     const KernelTable& kernels, ThreadPool& pool, KvPool& kv, CodecTiles* tiles) {
  const DynamicPattern* pattern = dynamic_pattern(chosen);
  if (!pattern) return;
  const RowCodec& codec = *kernels.find_codec(kv.layout().format);
  const int64_t first = begin / pattern->block(), blocks = end / pattern->block() - first;
  if (blocks <= 0) return;
  for (const KvLayer& own : kv.layout().layers) {
    if (!own.summarizes_blocks()) continue;
    const int64_t keys = own.side->layer;
    if (tiles) tiles->at_layer(keys);
    pool.parallel_for(blocks * own.kv_heads, [&](int64_t index, int worker) {
      summarize_block(table.data(), keys, index % own.kv_heads, codec, kv, tiles, worker, *pattern,
                      first + index / own.kv_heads);
      forget_lines(*pattern, own, kv, table.data(), index % own.kv_heads, first + index / own.kv_heads);
      forget_sums(*pattern, own, kv, table.data(), index % own.kv_heads, first + index / own.kv_heads);
    });
  }
}

}  // namespace millrace
