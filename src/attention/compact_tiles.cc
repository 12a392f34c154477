// CodecTiles::compact(): the tokens that a stream keeps move to its first slots, in tiles and in the tail.
#include <algorithm>
#include <cstring>

#include "attention/codec_tiles.h"

namespace millrace {
namespace {

// Whether slots [first, end) stay where they are.
bool stay(std::span<const int32_t> kept, int64_t first, int64_t end) {
  return kept[static_cast<size_t>(first)] == first && kept[static_cast<size_t>(end - 1)] == end - 1;  // ascending
}

}  // namespace

void CodecTiles::compact(const KeptSlots& slots, ThreadPool& pool) {
  const std::vector<KvLayer>& layers = kv_->layout().layers;
  const size_t tokens = slots.kept.size() / static_cast<size_t>(slots.heads);
  for (int64_t layer = 0; layer < std::ssize(layers); ++layer) {
    const KvLayer& one = layers[static_cast<size_t>(layer)];
    if (one.kv_heads == 0 || one.side) continue;
    layer_ = layer;
    const int64_t first = slots.heads > 1 ? kv_->layout().heads_before(layer) : 0;
    pool.parallel_for(2 * one.kv_heads, [&](int64_t index, int worker) {
      const int64_t head = index / 2;
      const auto own = static_cast<size_t>(slots.heads > 1 ? first + head : 0) * tokens;
      compact_part(slots, slots.kept.subspan(own, tokens), index % 2 == 0 ? KvPart::keys : KvPart::values, head,
                   worker);
    });
  }
}

// Encoded tokens, by the order of their slots: none is overwritten before it moves.
void CodecTiles::move_tokens(const KeptSlots& slots, std::span<const int32_t> kept, KvPart part, int64_t head) const {
  const KvCodec& codec = kv_->layout().codec->layer(layer_);
  const auto tile = [&](int64_t slot) {
    const BlockId id = slots.table[static_cast<size_t>(slot / block_tokens_)];
    return part == KvPart::keys ? kv_->keys(layer_, id, head) : kv_->values(layer_, id, head);
  };
  for (int64_t to = 0; to < std::ssize(kept); ++to) {
    const int64_t from = kept[static_cast<size_t>(to)];
    if (from == to) continue;
    codec.move_token(part, tile(from), from % block_tokens_, tile(to), to % block_tokens_, block_tokens_, head_dim());
  }
}

// Blocks are written in ascending order, and a block's tokens come from it and from later ones. Of the worker's room:
//
//   a block's rows as f32 | the same as f16 | a decoded block, f16 | queries | rows for the tail
void CodecTiles::compact_part(const KeptSlots& slots, std::span<const int32_t> kept, KvPart part, int64_t head,
                              int worker) const {
  const KvCodec& codec = kv_->layout().codec->layer(layer_);
  const int64_t dim = head_dim(), row = row_bytes(), count = std::ssize(kept), block_bytes = block_tokens_ * row;
  if (count == 0 || stay(kept, 0, count)) return;
  auto* rows = reinterpret_cast<float*>(decoded(worker));
  uint8_t* halves = decoded(worker) + block_tokens_ * dim * static_cast<int64_t>(sizeof(float));
  uint8_t* source = halves + block_bytes;
  uint8_t* newest = decoded(worker) + kept_at_;
  uint8_t* const tail =
      pool_->tail(layer_, slots.state) + (part == KvPart::keys ? head : heads() + head) * tail_tokens_ * row;
  const int64_t raw = first_raw(slots.stored - 1) * block_tokens_;
  int64_t decoded_block = -1;
  const auto row_of = [&](int64_t index) -> const uint8_t* {
    const int64_t slot = kept[static_cast<size_t>(index)], block = slot / block_tokens_;
    if (slot >= raw) return tail + slot % tail_tokens_ * row;
    if (decoded_block != block) {
      part == KvPart::keys ? decode_keys(slots.table.data(), head, block, source)
                           : decode_values(slots.table.data(), head, block, source);
      decoded_block = block;
    }
    return source + slot % block_tokens_ * row;
  };
  const auto read = [&](int64_t first, int64_t end, uint8_t* to) {
    for (int64_t i = first; i < end; ++i) std::memcpy(to + (i - first) * row, row_of(i), static_cast<size_t>(row));
  };
  const int64_t first_newest = first_raw(count) * block_tokens_, full = count / block_tokens_;
  read(first_newest, count, newest);
  decoded_block = -1;
  const auto tile = [&](int64_t block) {
    const BlockId id = slots.table[static_cast<size_t>(block)];
    return part == KvPart::keys ? kv_->keys(layer_, id, head) : kv_->values(layer_, id, head);
  };
  if (codec.by_token(part) && codec.moves_tokens()) {
    move_tokens(slots, kept, part, head);
  } else {
    for (int64_t block = 0; block < full; ++block) {
      const int64_t first = block * block_tokens_;
      if (stay(kept, first, first + block_tokens_)) continue;
      read(first, first + block_tokens_, halves);
      f16_->decode(halves, rows, block_tokens_ * dim);
      codec.store(part, rows, block_tokens_, dim, tile(block));
    }
    for (int64_t slot = full * block_tokens_; codec.by_token(part) && slot < count; ++slot) {
      f16_->decode(newest + (slot - first_newest) * row, rows, dim);
      codec.store_token(part, rows, slot % block_tokens_, block_tokens_, dim, tile(slot / block_tokens_));
    }
  }
  for (int64_t slot = first_newest; slot < count; ++slot)
    std::memcpy(tail + slot % tail_tokens_ * row, newest + (slot - first_newest) * row, static_cast<size_t>(row));
}

}  // namespace millrace
