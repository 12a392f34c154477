// FeaturePlane: one row of numbers for every token of every stream, such as the model's hidden states, in the blocks of
// the KV pool: a further layer without values. The rows follow a stream's blocks through the prefix cache, preemption,
// swap and the moves of a tree's kept tokens. They are rounded to the format of the keys.
#pragma once

#include <span>

#include "base/thread_pool.h"
#include "flow/batch.h"
#include "kernels/kernel_table.h"
#include "kv/pool.h"

namespace millrace {

class FeaturePlane {
 public:
  // The layer to be added to the pool's layout.
  static KvLayer layer(int64_t width) { return {.kv_heads = 1, .head_dim = width, .values_in_keys = true}; }

  FeaturePlane() = default;
  // `pool` and `kernels` outlive it.
  FeaturePlane(KvPool& pool, const KernelTable& kernels, int64_t layer)
      : pool_(&pool),
        codec_(kernels.find_codec(pool.layout().format)),
        layer_(layer),
        width_(pool.layout().layers[static_cast<size_t>(layer)].head_dim) {}

  int64_t width() const { return width_; }

  // [width] of one slot of the stream with this block table. A slot below 0 has zeros.
  void read(std::span<const BlockId> table, int64_t slot, float* row) const;
  void write(std::span<const BlockId> table, int64_t slot, const float* row);
  // Stores the rows of all tokens of a batch [tokens, width].
  void store(const Batch& batch, const float* rows, ThreadPool& threads);

 private:
  uint8_t* at(BlockId block, int64_t slot) const {
    return pool_->keys(layer_, block, 0) + slot % pool_->layout().block_tokens * pool_->row_bytes(layer_);
  }

  KvPool* pool_ = nullptr;
  const RowCodec* codec_ = nullptr;
  int64_t layer_ = 0, width_ = 0;
};

}  // namespace millrace
