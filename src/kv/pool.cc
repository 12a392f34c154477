#include "kv/pool.h"

#include <fmt/format.h>

#include <cassert>
#include <cstring>

namespace millrace {

int64_t KvLayout::block_bytes() const {
  int64_t bytes = 0;
  for (const auto& layer : layers) bytes += 2 * layer.kv_heads * block_tokens * format->row_bytes(layer.head_dim);
  return bytes;
}

Result<void> KvLayout::check() const {
  constexpr int64_t kMaxDim = 1 << 20;
  if (!format) return Error::internal("KV cache: no format");
  if (block_tokens < 1 || block_tokens > 4096) {
    return Error::user(fmt::format("KV block size: must be between 1 and 4096 tokens, got {}", block_tokens));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto& layer = layers[i];
    if (layer.kv_heads < 1 || layer.head_dim < 1 || layer.kv_heads > kMaxDim || layer.head_dim > kMaxDim) {
      return Error::user(fmt::format("KV cache: layer {} has {} heads of {} values", i, layer.kv_heads, layer.head_dim));
    }
    if (layer.head_dim % format->block_values != 0) {
      return Error::unsupported(fmt::format("KV format {}: needs a head size that is a multiple of {}, the model has {}; "
                                            "choose f16, bf16 or f32", format->name, format->block_values, layer.head_dim));
    }
  }
  return {};
}

Result<KvPool> KvPool::create(KvLayout layout, int64_t blocks) {
  MILLRACE_TRY_VOID(layout.check());
  if (blocks < 1) return Error::user(fmt::format("KV cache: needs at least one block, got {}", blocks));
  if (blocks > INT32_MAX) return Error::resource(fmt::format("KV cache: {} blocks are more than can be addressed; lower the KV tokens", blocks));
  int64_t per_block = layout.block_bytes();
  if (per_block > 0 && blocks > INT64_MAX / per_block) {
    return Error::resource(fmt::format("KV cache: {} blocks of {} bytes do not fit; lower the context or the number of streams",
                                       blocks, per_block));
  }
  KvPool pool;
  for (const auto& layer : layout.layers) {
    int64_t row = layout.format->row_bytes(layer.head_dim);
    MILLRACE_TRY(auto buffer, AlignedBuffer::allocate(blocks * 2 * layer.kv_heads * layout.block_tokens * row, "KV cache"));
    pool.row_bytes_.push_back(row);
    pool.buffers_.push_back(std::move(buffer));
  }
  pool.layout_ = std::move(layout);
  pool.references_.assign(static_cast<size_t>(blocks), 0);
  pool.free_.resize(static_cast<size_t>(blocks));
  for (int64_t i = 0; i < blocks; ++i) pool.free_[i] = static_cast<BlockId>(blocks - 1 - i);
  return pool;
}

Result<BlockId> KvPool::allocate() {
  if (free_.empty()) return Error::resource("KV cache: no free block");
  BlockId block = free_.back();
  free_.pop_back();
  references_[block] = 1;
  return block;
}

void KvPool::release(BlockId block) {
  assert(references_[block] > 0);
  if (--references_[block] == 0) free_.push_back(block);
}

void KvPool::copy(BlockId from, BlockId to) {
  for (size_t layer = 0; layer < buffers_.size(); ++layer) {
    const auto bytes = static_cast<size_t>(layout_.block_tokens * row_bytes_[layer]);
    for (int64_t head = 0; head < layout_.layers[layer].kv_heads; ++head) {
      std::memcpy(keys(layer, to, head), keys(layer, from, head), bytes);
      std::memcpy(values(layer, to, head), values(layer, from, head), bytes);
    }
  }
}

}  // namespace millrace
