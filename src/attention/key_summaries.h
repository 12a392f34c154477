// Summaries of keys for dynamic patterns (attention/dynamic_pattern.h). Summaries are stored in additional layers of
// the KV pool, one without values for each layer of the model. So they follow a stream's blocks through the prefix
// cache, preemption, swap and files. The summary of a pattern's block takes the place of rows in the last KV block of
// that block. It is computed when the last token of the block is stored, from the stored keys, with the rounding of
// their format or codec:
//
//   layer       0 | k k k k | k k k k |      KV blocks of 16, a pattern's blocks of 64
//   layer n + 0 | . . . S | . . . S |        n: layers of the model
//
// If drafted tokens are rejected, a summary may be left that covers their keys. It is computed again when other tokens
// complete the block.
#pragma once

#include "attention/dynamic_pattern.h"
#include "attention/full.h"

namespace millrace {

// Adds the layers of summaries if the pattern is dynamic. A model's layer whose window is shorter than `context` tokens
// has no summaries. Errors: unsupported (keys and values of different formats).
Result<void> add_key_summaries(KvLayout& layout, const AttentionPattern* pattern, int64_t context);

// Returns the index of the pool's layer that has the summaries of `layer`.
inline int64_t summary_layer(const KvPool& kv, int64_t layer) { return layer + std::ssize(kv.layout().layers) / 2; }

// Computes the summaries of the blocks whose last token is in the batch; all keys of these blocks must be stored.
// `context`, `tiles`: as in attend(). Does nothing without a dynamic pattern.
void summarize_keys(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool,
                    KvPool& kv, int64_t context, const CodecTiles* tiles = nullptr);

// Computes the summaries of a stream's complete blocks again, after keys in slots from `begin` on have changed. Called
// between passes. `end`: number of stored slots. `tiles`: only if the pool has a codec.
void summarize_again(std::span<const BlockId> table, int64_t begin, int64_t end, const AttentionPattern* pattern,
                     const KernelTable& kernels, ThreadPool& pool, KvPool& kv, CodecTiles* tiles = nullptr);

// Returns the summary of a complete block of the stream with this table: [summary_floats()].
inline float* key_summary(KvPool& kv, int64_t layer, int64_t kv_head, const int32_t* table, int64_t block,
                          int64_t pattern_block) {
  const int64_t each = pattern_block / kv.layout().block_tokens;
  return reinterpret_cast<float*>(kv.keys(summary_layer(kv, layer), table[(block + 1) * each - 1], kv_head));
}

// Summaries of a stream's complete blocks.
class StoredSummaries final : public BlockSummaries {
 public:
  StoredSummaries(KvPool& kv, const DynamicPattern& pattern, const AttentionLayer& layer, int64_t kv_head,
                  const int32_t* table)
      : kv_(kv), pattern_(pattern), layer_(layer), kv_head_(kv_head), table_(table) {}
  std::span<const float> operator[](int64_t block) const override {
    return {key_summary(kv_, layer_.layer, kv_head_, table_, block, pattern_.block()),
            static_cast<size_t>(pattern_.summary_floats(layer_.head_dim))};
  }

 private:
  KvPool& kv_;
  const DynamicPattern& pattern_;
  const AttentionLayer& layer_;
  int64_t kv_head_;
  const int32_t* table_;
};

}  // namespace millrace
