#include "attention/codec_tiles.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace millrace {
namespace {

// Blocks that a partition may touch.
int64_t partition_blocks(int64_t block_tokens) { return kAttentionPartition / block_tokens + 2; }

// Of one block, keys and values of all heads, in the layer with the most.
int64_t raw_block_bytes(const KvLayout& layout) {
  int64_t bytes = 0;
  for (const KvLayer& layer : layout.layers)
    bytes = std::max(bytes, 2 * layer.kv_heads * layout.block_tokens * layout.format->row_bytes(layer.head_dim));
  return bytes;
}

// Of one worker: decoded keys and values of a partition; also a block's rows as f32, while it is encoded.
int64_t decoded_bytes(const KvLayout& layout) {
  int64_t row = 0;
  for (const KvLayer& layer : layout.layers) row = std::max(row, layout.format->row_bytes(layer.head_dim));
  constexpr int64_t kPage = 4096;
  return (2 * partition_blocks(layout.block_tokens) * layout.block_tokens * row + kPage - 1) / kPage * kPage;
}

// A chunk in the window has more tokens than a block; see CodecTiles::window_block().
int64_t window_bytes(const KvLayout& layout, int64_t tokens) {
  if (tokens + layout.block_tokens + layout.residual_blocks() * layout.block_tokens <= layout.tail_tokens) return 0;
  return (tokens / layout.block_tokens + 1) * (layout.residual_blocks() + 3) * raw_block_bytes(layout);
}

void prefetch(const uint8_t* tile, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(tile + at);
}

void see_nothing(const AttentionArgs& a) {
  const int64_t rows = a.queries * a.group;
  std::fill_n(a.max, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(a.sum, rows, 0.0f);
  std::fill_n(a.acc, rows * a.head_dim, 0.0f);
}

}  // namespace

int64_t CodecTiles::bytes(const KvLayout& layout, int64_t tokens, int threads) {
  return layout.codec ? window_bytes(layout, tokens) + threads * decoded_bytes(layout) : 0;
}

Result<CodecTiles> CodecTiles::create(KvPool& kv, int64_t group, const KernelTable& kernels, int64_t tokens,
                                      int threads) {
  CodecTiles tiles;
  const KvLayout& layout = kv.group(group).layout();
  if (!layout.codec) return tiles;
  tiles.kv_ = &kv.group(group);
  tiles.pool_ = &kv;
  tiles.group_ = group;
  tiles.kernels_ = &kernels;
  tiles.f16_ = kernels.find_codec(layout.format);
  tiles.block_tokens_ = layout.block_tokens;
  tiles.tail_tokens_ = layout.tail_tokens;
  tiles.residual_blocks_ = layout.residual_blocks();
  tiles.decoded_bytes_ = decoded_bytes(layout);
  MILLRACE_TRY(tiles.window_, AlignedBuffer::allocate(window_bytes(layout, tokens), "activations"));
  MILLRACE_TRY(tiles.decoded_, AlignedBuffer::allocate(threads * tiles.decoded_bytes_, "activations"));
  return tiles;
}

int64_t CodecTiles::first_raw(int64_t slot) const {
  return std::max<int64_t>(0, slot / block_tokens_ - residual_blocks_);
}

bool CodecTiles::in_tail(const BatchSpan& chunk) const {
  return chunk.first_slot + chunk.count - first_raw(chunk.first_slot) * block_tokens_ <= tail_tokens_;
}

// A chunk in the window has at least block_tokens + 2 tokens, so that the next one in the batch begins at least one
// block later; its rows are in at most residual_blocks + 2 + (count - 2) / block_tokens blocks.
int64_t CodecTiles::window_block(const BatchSpan& chunk) const {
  return chunk.begin / block_tokens_ * (residual_blocks_ + 3);
}

uint8_t* CodecTiles::tail_block(const BatchSpan& chunk, int64_t block, int64_t plane) const {
  return pool_->tail(layer_, chunk.state) + (plane * tail_tokens_ + block * block_tokens_ % tail_tokens_) * row_bytes();
}

// plane: a head of the keys, or heads() + a head of the values.
uint8_t* CodecTiles::raw_block(const BatchSpan& chunk, int64_t block, int64_t plane) const {
  if (in_tail(chunk)) return tail_block(chunk, block, plane);
  const int64_t place = window_block(chunk) + block - first_raw(chunk.first_slot);
  return window_.data() + (place * 2 * heads() + plane) * block_tokens_ * row_bytes();
}

// Rows of slots [begin, end) of a chunk in the window, from the tail or to it.
void CodecTiles::copy_rows(const BatchSpan& chunk, int64_t begin, int64_t end, bool to_tail) const {
  for (int64_t slot = begin; slot < end;) {
    const int64_t block = slot / block_tokens_, within = slot % block_tokens_;
    const int64_t rows = std::min(end - slot, block_tokens_ - within);
    for (int64_t plane = 0; plane < 2 * heads(); ++plane) {
      uint8_t* tail = tail_block(chunk, block, plane) + within * row_bytes();
      uint8_t* window = raw_block(chunk, block, plane) + within * row_bytes();
      std::memcpy(to_tail ? tail : window, to_tail ? window : tail, static_cast<size_t>(rows * row_bytes()));
    }
    slot += rows;
  }
}

void CodecTiles::begin(const Batch& batch, int64_t layer) {
  batch_ = &batch;
  layer_ = layer;
  for (const BatchSpan& chunk : batch.spans_of(group_))
    if (!in_tail(chunk)) copy_rows(chunk, first_raw(chunk.first_slot) * block_tokens_, chunk.first_slot, false);
}

void CodecTiles::store(const BatchSpan& chunk, int64_t token, const float* k, const float* v) {
  const int64_t slot = chunk.first_slot + token - chunk.begin, dim = head_dim();
  const int64_t offset = slot % block_tokens_ * row_bytes();
  for (int64_t h = 0; h < heads(); ++h) {
    f16_->encode(k + h * dim, raw_block(chunk, slot / block_tokens_, h) + offset, dim);
    f16_->encode(v + h * dim, raw_block(chunk, slot / block_tokens_, heads() + h) + offset, dim);
  }
}

void CodecTiles::encode_block(const BatchSpan& chunk, int64_t block, int64_t head, int worker) const {
  const BlockId id = batch_->tables(group_)[static_cast<size_t>(chunk.table + block)];
  const KvCodec& codec = *kv_->layout().codec;
  auto* rows = reinterpret_cast<float*>(decoded(worker));
  const int64_t dim = head_dim();
  f16_->decode(raw_block(chunk, block, head), rows, block_tokens_ * dim);
  codec.store(KvPart::keys, rows, block_tokens_, dim, kv_->keys(layer_, id, head));
  f16_->decode(raw_block(chunk, block, heads() + head), rows, block_tokens_ * dim);
  codec.store(KvPart::values, rows, block_tokens_, dim, kv_->values(layer_, id, head));
}

void CodecTiles::encode(ThreadPool& pool) {
  const auto blocks_of = [&](const BatchSpan& chunk) {
    return (chunk.first_slot + chunk.count) / block_tokens_ - chunk.first_slot / block_tokens_;
  };
  const std::vector<BatchSpan>& spans = batch_->spans_of(group_);
  int64_t units = 0;
  for (const BatchSpan& chunk : spans) units += heads() * blocks_of(chunk);
  if (units > 0) {
    pool.parallel_for(units, [&](int64_t index, int worker) {
      const BatchSpan* chunk = spans.data();
      for (; index >= heads() * blocks_of(*chunk); ++chunk) index -= heads() * blocks_of(*chunk);
      encode_block(*chunk, chunk->first_slot / block_tokens_ + index / heads(), index % heads(), worker);
    });
  }
  for (const BatchSpan& chunk : spans) {
    const int64_t end = chunk.first_slot + chunk.count;
    if (!in_tail(chunk)) copy_rows(chunk, std::max(chunk.first_slot, end - tail_tokens_), end, true);
  }
}

// Blocks [begin, end) of a head: keys to their places in `to`, whose first is for block `first`, and values behind
// them.
void CodecTiles::decode(const int32_t* table, int64_t head, int64_t begin, int64_t end, int64_t first,
                        uint8_t* to) const {
  const KvCodec& codec = *kv_->layout().codec;
  const int64_t dim = head_dim(), block_bytes = block_tokens_ * row_bytes();
  uint8_t* values = to + partition_blocks(block_tokens_) * block_bytes;
  for (int64_t b = begin; b < end; ++b) {
    if (b + 1 < end) {
      prefetch(kv_->keys(layer_, table[b + 1], head), kv_->tile_bytes(layer_));
      prefetch(kv_->values(layer_, table[b + 1], head), kv_->tile_bytes(layer_));
    }
    codec.load(KvPart::keys, *kernels_, kv_->keys(layer_, table[b], head), block_tokens_, dim,
               to + (b - first) * block_bytes);
    codec.load(KvPart::values, *kernels_, kv_->values(layer_, table[b], head), block_tokens_, dim,
               values + (b - first) * block_bytes);
  }
}

// Queries of one block see the same blocks raw: the kernel runs once for each block of queries.
void CodecTiles::attend(const AttentionKernel& kernel, const BatchSpan& span, const int32_t* table, int64_t head,
                        const AttentionArgs& args, int worker, const uint8_t** blocks) const {
  const BatchSpan& chunk = batch_->spans_of(group_)[static_cast<size_t>(span.chunk)];
  const int64_t first = args.key_begin / block_tokens_;
  const int64_t end = (args.key_end + block_tokens_ - 1) / block_tokens_;
  const int64_t block_bytes = block_tokens_ * row_bytes();
  const int64_t first_seen = args.window > 0 ? std::max<int64_t>(0, args.first_query + 1 - args.window) : 0;
  uint8_t* const keys = decoded(worker);
  uint8_t* const values = keys + partition_blocks(block_tokens_) * block_bytes;
  decode(table, head, std::max(first, first_seen / block_tokens_),
         std::min(end, first_raw(args.first_query + args.queries - 1)), first, keys);
  AttentionArgs part = args;
  part.block_tokens = block_tokens_;
  part.row_bytes = row_bytes();
  part.cold = false;
  part.k_blocks = blocks;
  part.v_blocks = blocks + end;
  for (int64_t done = 0; done < args.queries; done += part.queries) {
    const int64_t slot = args.first_query + done, rows = done * args.group;
    part.first_query = slot;
    part.queries = std::min(args.queries - done, block_tokens_ - slot % block_tokens_);
    part.q = args.q + done * args.q_stride;
    part.key_end = part.key_ahead = std::min(args.key_end, slot + part.queries);
    part.max = args.max + rows;
    part.sum = args.sum + rows;
    part.acc = args.acc + rows * args.head_dim;
    if (part.key_end <= part.key_begin) {
      see_nothing(part);
      continue;
    }
    for (int64_t b = first; b * block_tokens_ < part.key_end; ++b) {
      const bool encoded = b < first_raw(slot);
      blocks[b] = encoded ? keys + (b - first) * block_bytes : raw_block(chunk, b, head);
      blocks[end + b] = encoded ? values + (b - first) * block_bytes : raw_block(chunk, b, heads() + head);
    }
    kernel.run(part);
  }
}

}  // namespace millrace
