#include "attention/codec_tiles.h"

#include <algorithm>
#include <array>
#include <cmath>
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
    if (!layer.side)
      bytes = std::max(bytes, 2 * layer.kv_heads * layout.block_tokens * layout.format->row_bytes(layer.head_dim));
  return bytes;
}

constexpr int64_t kRotatedRows = 256;  // queries x heads that are rotated at a time
constexpr int64_t kMaxRotated = 1024;  // dims of a head

int64_t whole_pages(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

int64_t most_dims(const KvLayout& layout) {
  int64_t dims = 0;
  for (const KvLayer& layer : layout.layers)
    if (!layer.side) dims = std::max(dims, layer.head_dim);
  return dims;
}

// Of one worker: decoded keys and values of a partition; also a block's rows as f32, while it is encoded.
int64_t rows_bytes(const KvLayout& layout) {
  return whole_pages(2 * partition_blocks(layout.block_tokens) * layout.block_tokens *
                     layout.format->row_bytes(most_dims(layout)));
}

// Rotated queries behind them.
int64_t rotated_bytes(const KvLayout& layout) {
  const int64_t rotated = layout.codec->rotates() ? kRotatedRows * most_dims(layout) : 0;
  return whole_pages(rotated * static_cast<int64_t>(sizeof(float)));
}

// And rows of a tail.
int64_t decoded_bytes(const KvLayout& layout) {
  const int64_t kept = layout.tail_tokens * layout.format->row_bytes(most_dims(layout));
  return rows_bytes(layout) + rotated_bytes(layout) + whole_pages(kept);
}

// A chunk in the window has more tokens than a block; see CodecTiles::window_block().
int64_t window_bytes(const KvLayout& layout, int64_t tokens) {
  if (tokens + layout.block_tokens + layout.residual_blocks() * layout.block_tokens <= layout.tail_tokens) return 0;
  return (tokens / layout.block_tokens + 1) * (layout.residual_blocks() + 3) * raw_block_bytes(layout);
}

int64_t places_bytes(const KvLayout& layout, int64_t context) {
  return (context / layout.block_tokens + 2) * static_cast<int64_t>(sizeof(int32_t));
}

// By layer, as far as the codec asks for any.
std::span<const KeyRope> used_ropes(const KvLayout& layout, std::span<const KeyRope> ropes) {
  return layout.codec->before_rope() ? ropes : std::span<const KeyRope>();
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

int64_t CodecTiles::bytes(const KvLayout& layout, int64_t tokens, int threads, std::span<const KeyRope> ropes,
                          int64_t context) {
  if (!layout.codec) return 0;
  return window_bytes(layout, tokens) + threads * (decoded_bytes(layout) + places_bytes(layout, context)) +
         KeyTurnTables::bytes(used_ropes(layout, ropes), layout.block_tokens, context);
}

Result<CodecTiles> CodecTiles::create(KvPool& kv, int64_t group, const KernelTable& kernels, int64_t tokens,
                                      int threads, std::span<const KeyRope> ropes, int64_t context) {
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
  tiles.rotated_at_ = rows_bytes(layout);
  tiles.kept_at_ = tiles.rotated_at_ + rotated_bytes(layout);
  MILLRACE_TRY(tiles.window_, AlignedBuffer::allocate(window_bytes(layout, tokens), "activations"));
  MILLRACE_TRY(tiles.decoded_, AlignedBuffer::allocate(threads * tiles.decoded_bytes_, "activations"));
  tiles.most_blocks_ = places_bytes(layout, context) / static_cast<int64_t>(sizeof(int32_t));
  MILLRACE_TRY(tiles.places_, AlignedBuffer::allocate(threads * places_bytes(layout, context), "activations"));
  tiles.full_.reserve(static_cast<size_t>(tokens));  // each has its last token in the pass
  MILLRACE_TRY(tiles.turns_, KeyTurnTables::create(used_ropes(layout, ropes), layout.block_tokens, context));
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
  const KvCodec& codec = kv_->layout().codec->layer(layer);
  levels_.reset();
  if (kernels_->attend_tiles && head_dim() <= kMaxTilesHeadDim) levels_ = codec.level_tiles(block_tokens_, head_dim());
  if (levels_ && codec.before_rope()) levels_->turns = &turns_.of(layer);
  later_ = levels_;
  if (later_) later_->sink_tokens = 0;
  for (const BatchSpan& chunk : batch.spans_of(group_))
    if (!in_tail(chunk)) copy_rows(chunk, first_raw(chunk.first_slot) * block_tokens_, chunk.first_slot, false);
}

void CodecTiles::store(const BatchSpan& chunk, int64_t token, const float* k, const float* v) {
  const int64_t slot = chunk.first_slot + token - chunk.begin, dim = head_dim();
  const int64_t offset = slot % block_tokens_ * row_bytes();
  const KvCodec& codec = *kv_->layout().codec;
  std::array<float, kMaxRotated> rotated;
  const auto encode = [&](KvPart part, const float* row, int64_t head) {
    if (codec.rotates()) {
      std::copy_n(row, dim, rotated.data());
      codec.rotate(rotated.data(), dim);
      row = rotated.data();
    }
    const int64_t plane = part == KvPart::keys ? head : heads() + head;
    uint8_t* const raw = raw_block(chunk, slot / block_tokens_, plane) + offset;
    f16_->encode(row, raw, dim);
    if (codec.by_token(part)) encode_token(part, chunk, slot, head, raw);
  };
  for (int64_t h = 0; h < heads(); ++h) {
    encode(KvPart::keys, k + h * dim, h);
    encode(KvPart::values, v + h * dim, h);
  }
}

uint8_t* CodecTiles::tile_of(KvPart part, const BatchSpan& chunk, int64_t block, int64_t head) const {
  const BlockId id = batch_->tables(group_)[static_cast<size_t>(chunk.table + block)];
  return part == KvPart::keys ? kv_->keys(layer_, id, head) : kv_->values(layer_, id, head);
}

void CodecTiles::encode_token(KvPart part, const BatchSpan& chunk, int64_t slot, int64_t head,
                              const uint8_t* raw) const {
  std::array<float, kMaxRotated> row;
  f16_->decode(raw, row.data(), head_dim());
  kv_->layout().codec->layer(layer_).store_token(part, row.data(), slot % block_tokens_, block_tokens_, head_dim(),
                                                 tile_of(part, chunk, slot / block_tokens_, head));
}

void CodecTiles::encode_block(KvPart part, const BatchSpan& chunk, int64_t block, int64_t head, int worker) const {
  const KvCodec& codec = kv_->layout().codec->layer(layer_);
  const int64_t dim = head_dim(), count = block_tokens_ * dim;
  const uint8_t* const raw = raw_block(chunk, block, part == KvPart::keys ? head : heads() + head);
  uint8_t* const tile = tile_of(part, chunk, block, head);
  if (!codec.by_token(part)) {
    auto* rows = reinterpret_cast<float*>(decoded(worker));
    const uint8_t* from = raw;
    if (part == KvPart::keys && codec.before_rope()) {
      auto* halves = reinterpret_cast<uint8_t*>(rows + count);
      std::memcpy(halves, raw, static_cast<size_t>(block_tokens_ * row_bytes()));
      rotate_keys(block, halves, true);
      from = halves;
    }
    f16_->decode(from, rows, count);
    codec.store(part, rows, block_tokens_, dim, tile);
  }
  if (block == 0 && codec.sink_tokens() > 0)
    std::memcpy(tile + codec.sink_at(block_tokens_, dim), raw, static_cast<size_t>(codec.sink_tokens() * row_bytes()));
}

// A block's keys by the positions of their slots. Where a stream's positions are not its slots but a distance away from
// them, keys before RoPE are all rotated by that distance, which scales per channel hardly notice.
void CodecTiles::rotate_keys(int64_t block, uint8_t* rows, bool back) const {
  const KeyTurns& turns = turns_.of(layer_);
  if (turns.pairs == 0) return;
  kernels_->rotate_rows({.rows = rows,
                         .count = block_tokens_,
                         .dim = head_dim(),
                         .rotated = 2 * turns.pairs,
                         .half = turns.half,
                         .back = back,
                         .block_turn = turns.blocks + 2 * block * turns.pairs,
                         .row_turns = turns.rows});
}

void CodecTiles::encode(ThreadPool& pool) {
  const KvCodec& codec = *kv_->layout().codec;
  const std::vector<BatchSpan>& spans = batch_->spans_of(group_);
  full_.clear();
  if (!codec.by_token(KvPart::keys) || !codec.by_token(KvPart::values) || codec.sink_tokens() > 0)
    for (const BatchSpan& chunk : spans)
      for (int64_t b = chunk.first_slot / block_tokens_; (b + 1) * block_tokens_ <= chunk.first_slot + chunk.count; ++b)
        full_.push_back({&chunk, b});
  const int64_t units = std::ssize(full_) * heads();
  const auto encode_unit = [&](int64_t index, int worker) {
    if (index + 1 < units) {
      const FullBlock& next = full_[static_cast<size_t>((index + 1) / heads())];
      const int64_t head = (index + 1) % heads();
      prefetch(raw_block(*next.chunk, next.block, head), block_tokens_ * row_bytes());
      prefetch(tile_of(KvPart::keys, *next.chunk, next.block, head), kv_->tile_bytes(layer_));
    }
    const FullBlock& one = full_[static_cast<size_t>(index / heads())];
    for (const KvPart part : {KvPart::keys, KvPart::values})
      encode_block(part, *one.chunk, one.block, index % heads(), worker);
  };
  if (units > 0) pool.parallel_for(units, encode_unit);
  for (const BatchSpan& chunk : spans) {
    const int64_t end = chunk.first_slot + chunk.count;
    if (!in_tail(chunk)) copy_rows(chunk, std::max(chunk.first_slot, end - tail_tokens_), end, true);
  }
}

// A block's keys as rows of f16, in the codec's basis.
void CodecTiles::decode_keys(const int32_t* table, int64_t head, int64_t block, uint8_t* rows) const {
  const KvCodec& codec = kv_->layout().codec->layer(layer_);
  const uint8_t* tile = kv_->keys(layer_, table[block], head);
  codec.load(KvPart::keys, *kernels_, tile, block_tokens_, head_dim(), rows);
  if (codec.before_rope()) rotate_keys(block, rows, false);
  if (block > 0 || codec.sink_tokens() == 0) return;
  std::memcpy(rows, tile + codec.sink_at(block_tokens_, head_dim()),
              static_cast<size_t>(codec.sink_tokens() * row_bytes()));
}

void CodecTiles::decode_values(const int32_t* table, int64_t head, int64_t block, uint8_t* rows) const {
  const KvCodec& codec = kv_->layout().codec->layer(layer_);
  const uint8_t* tile = kv_->values(layer_, table[block], head);
  codec.load(KvPart::values, *kernels_, tile, block_tokens_, head_dim(), rows);
  if (block > 0 || codec.sink_tokens() == 0) return;
  std::memcpy(rows, tile + codec.sink_at(block_tokens_, head_dim()),
              static_cast<size_t>(codec.sink_tokens() * row_bytes()));
}

// Blocks [begin, end) of the arguments: keys to their places in the worker's rows, whose first is for block `first`,
// and values behind them.
void CodecTiles::decode(const CodecKeys& keys, int64_t begin, int64_t end, int64_t first, bool with_values,
                        int worker) const {
  const int64_t block_bytes = block_tokens_ * row_bytes();
  uint8_t *to = decoded(worker), *values = to + partition_blocks(block_tokens_) * block_bytes;
  const auto id = [&](int64_t b) { return keys.table[keys.place(b)]; };
  for (int64_t b = begin; b < end; ++b) {
    if (b + 1 < end) {
      prefetch(kv_->keys(layer_, id(b + 1), keys.head), kv_->tile_bytes(layer_));
      prefetch(kv_->values(layer_, id(b + 1), keys.head), with_values ? kv_->tile_bytes(layer_) : 0);
    }
    decode_keys(keys.table, keys.head, keys.place(b), to + (b - first) * block_bytes);
    if (with_values) decode_values(keys.table, keys.head, keys.place(b), values + (b - first) * block_bytes);
  }
}

// Rows of f16 that are not at the beginning of the worker's room, which becomes theirs in f32.
const float* CodecTiles::unrotated(const uint8_t* rows, int worker) const {
  const KvCodec& codec = *kv_->layout().codec;
  auto* out = reinterpret_cast<float*>(decoded(worker));
  f16_->decode(rows, out, block_tokens_ * head_dim());
  if (codec.rotates())
    for (int64_t i = 0; i < block_tokens_; ++i) codec.rotate_back(out + i * head_dim(), head_dim());
  return out;
}

const float* CodecTiles::encoded_keys(const int32_t* table, int64_t head, int64_t block, int worker) const {
  uint8_t* rows = decoded(worker) + block_tokens_ * head_dim() * static_cast<int64_t>(sizeof(float));
  decode_keys(table, head, block, rows);
  return unrotated(rows, worker);
}

const float* CodecTiles::raw_keys(const BatchSpan& span, int64_t head, int64_t block, int worker) const {
  return unrotated(raw_block(batch_->spans_of(group_)[static_cast<size_t>(span.chunk)], block, head), worker);
}

// A partition of raw rows alone has the bits of f16 rows, whose kernel may multiply in another way than that of levels.
void CodecTiles::run_rows(const AttentionKernel& kernel, const AttentionArgs& args) const {
  const bool encoded = args.tiles && args.encoded_end > args.key_begin;
  encoded ? kernels_->attend_tiles(args) : kernel.run(args);
}

// With rotated queries; sums of values are rotated back. All at once, or some heads of one query at a time.
void CodecTiles::run_rotated(const AttentionKernel& kernel, const AttentionArgs& args, int worker) const {
  const KvCodec& codec = *kv_->layout().codec;
  const int64_t dim = args.head_dim;
  auto* rotated = reinterpret_cast<float*>(decoded(worker) + rotated_at_);
  AttentionArgs part = args;
  for (int64_t head = 0; head < args.group; head += part.group) {
    part.group = std::min(args.group - head, kRotatedRows);
    const int64_t rows = part.queries * part.group;
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = args.q + row / part.group * args.q_stride + (head + row % part.group) * dim;
      std::copy_n(from, dim, rotated + row * dim);
      codec.rotate(rotated + row * dim, dim);
    }
    part.q = rotated;
    part.q_stride = part.group * dim;
    part.max = args.max + head;
    part.sum = args.sum + head;
    part.acc = args.acc + head * dim;
    if (args.scores) part.scores = args.scores + head * args.score_stride;
    run_rows(kernel, part);
    for (int64_t row = 0; row < rows && !args.scores; ++row) codec.rotate_back(part.acc + row * dim, dim);
  }
}

// The number of the first block that the query numbered `slot` sees raw.
int64_t CodecTiles::raw_from(const CodecKeys& keys, int64_t slot) const {
  if (!keys.places) return first_raw(slot);
  int64_t block = slot / block_tokens_;
  const int64_t first = first_raw(keys.place(block) * block_tokens_);
  while (block > 0 && keys.place(block - 1) >= first) --block;
  return block;
}

// Runs the kernel over blocks that are encoded before number `raw`. Decoded ones are in the worker's rows; of tiles
// that are read as they are, those before `ahead` are worth prefetching.
void CodecTiles::run_blocks(const AttentionKernel& kernel, const CodecKeys& keys, AttentionArgs& args, int64_t raw,
                            int64_t ahead, int worker, const uint8_t** blocks) const {
  const BatchSpan& chunk = batch_->spans_of(group_)[static_cast<size_t>(keys.span.chunk)];
  const int64_t first = args.key_begin / block_tokens_, block_bytes = block_tokens_ * row_bytes();
  const uint8_t *rows = decoded(worker), *values = rows + partition_blocks(block_tokens_) * block_bytes;
  const auto point_at_tiles = [&](int64_t b) {
    const BlockId id = keys.table[keys.place(b)];
    blocks[b] = kv_->keys(layer_, id, keys.head);
    blocks[ahead + b] = kv_->values(layer_, id, keys.head);
  };
  const bool as_tiles = levels_ && !args.scores;
  args.block_tokens = block_tokens_;
  args.row_bytes = row_bytes();
  args.top = nullptr;
  args.cold = false;
  args.tiles = !as_tiles ? nullptr : keys.place(0) > 0 ? &*later_ : &*levels_;
  args.places = keys.places;
  args.k_blocks = blocks;
  args.v_blocks = blocks + ahead;
  const int64_t end = (args.key_end + block_tokens_ - 1) / block_tokens_;
  for (int64_t b = first; b < end; ++b) {
    if (b >= raw) {
      blocks[b] = raw_block(chunk, keys.place(b), keys.head);
      blocks[ahead + b] = raw_block(chunk, keys.place(b), heads() + keys.head);
    } else if (as_tiles) {
      point_at_tiles(b);
    } else {
      blocks[b] = rows + (b - first) * block_bytes;
      blocks[ahead + b] = values + (b - first) * block_bytes;
    }
  }
  args.encoded_end = as_tiles ? raw * block_tokens_ : 0;
  args.key_ahead = args.key_end;
  if (as_tiles) {  // tiles that the next partition reads
    const int64_t last = std::min(ahead, raw);
    for (int64_t b = end; b < last; ++b) point_at_tiles(b);
    args.key_ahead = std::max(args.key_end, last * block_tokens_);
  }
  kv_->layout().codec->rotates() ? run_rotated(kernel, args, worker) : run_rows(kernel, args);
}

// In the worker's room: keys of a partition | values | a block. Blocks that are seen whole are decoded to their places.
void CodecTiles::point(const CodecKeys& keys, std::span<const int64_t> slots, int64_t query, int worker,
                       const uint8_t** k, const uint8_t** v) const {
  const BatchSpan& chunk = batch_->spans_of(group_)[static_cast<size_t>(keys.span.chunk)];
  const int64_t raw = first_raw(query), row = row_bytes(), count = std::ssize(slots);
  uint8_t* const rows[] = {decoded(worker), decoded(worker) + kAttentionPartition * row};
  uint8_t* const whole = decoded(worker) + 2 * kAttentionPartition * row;
  const auto decode_part = [&](int part, int64_t block, uint8_t* to) {
    part == 0 ? decode_keys(keys.table, keys.head, block, to) : decode_values(keys.table, keys.head, block, to);
  };
  for (int64_t i = 0, run; i < count; i += run) {
    const int64_t block = slots[static_cast<size_t>(i)] / block_tokens_;
    for (run = 1; i + run < count && slots[static_cast<size_t>(i + run)] / block_tokens_ == block;) ++run;
    for (int part = 0; part < 2; ++part) {
      const uint8_t** const out = (part == 0 ? k : v) + i;
      uint8_t* const to = rows[part] + i * row;
      const uint8_t* from = block >= raw           ? raw_block(chunk, block, part * heads() + keys.head)
                            : run == block_tokens_ ? to
                                                   : whole;
      if (block < raw) decode_part(part, block, run == block_tokens_ ? to : whole);
      for (int64_t j = 0; j < run; ++j) {
        const uint8_t* const own = from + slots[static_cast<size_t>(i + j)] % block_tokens_ * row;
        if (from == whole) std::memcpy(to + j * row, own, static_cast<size_t>(row));
        out[j] = from == whole ? to + j * row : own;
      }
    }
  }
}

// Queries of one block see the same blocks raw: the kernel runs once for each block of queries.
void CodecTiles::attend(const AttentionKernel& kernel, const CodecKeys& keys, const AttentionArgs& args, int worker,
                        const uint8_t** blocks) const {
  const int64_t first = args.key_begin / block_tokens_;
  const int64_t end = (args.key_end + block_tokens_ - 1) / block_tokens_;
  const int64_t first_seen = args.window > 0 ? std::max<int64_t>(0, args.first_query + 1 - args.window) : 0;
  const bool rotates = kv_->layout().codec->rotates();
  if (!levels_ || args.scores)
    decode(keys, std::max(first, first_seen / block_tokens_),
           std::min(end, raw_from(keys, args.first_query + args.queries - 1)), first, !args.scores, worker);
  AttentionArgs part = args;
  const int64_t ahead = std::max(end, (args.key_ahead + block_tokens_ - 1) / block_tokens_);
  for (int64_t done = 0; done < args.queries; done += part.queries) {
    const int64_t slot = args.first_query + done, rows = done * args.group;
    part.first_query = slot;
    part.queries = std::min(args.queries - done, block_tokens_ - slot % block_tokens_);
    if (rotates) part.queries = std::min(part.queries, std::max<int64_t>(1, kRotatedRows / args.group));
    part.q = args.q + done * args.q_stride;
    part.key_end = std::min(args.key_end, slot + part.queries);
    if (args.scores) {
      part.scores = args.scores + rows * args.score_stride;
    } else {
      part.max = args.max + rows;
      part.sum = args.sum + rows;
      part.acc = args.acc + rows * args.head_dim;
    }
    if (part.key_end <= part.key_begin) {
      if (!args.scores) see_nothing(part);
      continue;
    }
    run_blocks(kernel, keys, part, raw_from(keys, slot), ahead, worker, blocks);
  }
}

void CodecTiles::attend_encoded(const AttentionKernel& kernel, const CodecKeys& keys, const AttentionArgs& args,
                                int worker, const uint8_t** blocks) const {
  const int64_t first = args.key_begin / block_tokens_, end = args.key_end / block_tokens_;
  const int64_t ahead = std::max(end, args.key_ahead / block_tokens_);
  if (!levels_) decode(keys, first, end, first, true, worker);
  AttentionArgs part = args;
  for (int64_t done = 0; done < args.queries; done += part.queries) {
    part.queries = std::min(args.queries - done, std::max<int64_t>(1, kRotatedRows / args.group));
    part.q = args.q + done * args.q_stride;
    part.max = args.max + done * args.group;
    part.sum = args.sum + done * args.group;
    part.acc = args.acc + done * args.group * args.head_dim;
    run_blocks(kernel, keys, part, ahead, ahead, worker, blocks);
  }
}

void CodecTiles::attend_before(const AttentionKernel& kernel, const CodecKeys& keys, const AttentionArgs& args,
                               int64_t encoded, int worker, const uint8_t** blocks) const {
  AttentionArgs all = args;
  if (!levels_) decode(keys, 0, encoded, 0, true, worker);
  run_blocks(kernel, keys, all, encoded, (args.key_end + block_tokens_ - 1) / block_tokens_, worker, blocks);
}

}  // namespace millrace
