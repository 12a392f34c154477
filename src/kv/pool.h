// KvPool: keys and values in paged blocks with reference counts. It knows ids, counts and bytes; never a
// Request, and no policy. Not thread-safe: owned by the engine thread; workers only read and write block bytes.
//
// One buffer a layer:  [K, V][kv_head][block][token in block][row_bytes]
//
// Blocks of one head lie behind each other, and ids are handed out ascending from a fresh pool: attention walks a lone
// stream's keys as one run of memory, which the processor's own prefetch follows. Head by head inside a block would
// make every 16 keys a piece of its own, a whole block of all heads apart from the next.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "formats/format.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

using BlockId = int32_t;

struct KvLayer {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

struct KvLayout {
  const Format* format = nullptr;
  int64_t block_tokens = 16;
  std::vector<KvLayer> layers;

  int64_t block_bytes() const;  // of one block in all layers, keys and values
  int64_t bytes_per_token() const { return block_bytes() / block_tokens; }
  Result<void> check() const;   // head_dim is whole format blocks, sizes do not overflow
};

class KvPool {
 public:
  // Errors: user (layout), resource (memory).
  static Result<KvPool> create(KvLayout layout, int64_t blocks);

  const KvLayout& layout() const { return layout_; }
  int64_t total_blocks() const { return static_cast<int64_t>(references_.size()); }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t bytes() const { return total_blocks() * layout_.block_bytes(); }

  Result<BlockId> allocate();  // one reference; errors: resource when none is free
  void share(BlockId block) { ++references_[block]; }
  void release(BlockId block);  // back to the free list at zero references
  int32_t references(BlockId block) const { return references_[block]; }
  void copy(BlockId from, BlockId to);  // every layer's bytes

  // Start of one head's rows: block_tokens rows of row_bytes().
  uint8_t* keys(int64_t layer, BlockId block, int64_t head) { return at(layer, block, 0, head); }
  uint8_t* values(int64_t layer, BlockId block, int64_t head) { return at(layer, block, 1, head); }
  int64_t row_bytes(int64_t layer) const { return row_bytes_[layer]; }

  // The blocks that `tokens` tokens need.
  int64_t blocks_for(int64_t tokens) const { return (tokens + layout_.block_tokens - 1) / layout_.block_tokens; }

 private:
  uint8_t* at(int64_t layer, BlockId block, int64_t kind, int64_t head) {
    const KvLayer& l = layout_.layers[layer];
    int64_t head_block = (kind * l.kv_heads + head) * total_blocks() + block;
    return buffers_[layer].data() + head_block * layout_.block_tokens * row_bytes_[layer];
  }

  KvLayout layout_;
  std::vector<int64_t> row_bytes_;
  std::vector<AlignedBuffer> buffers_;
  std::vector<int32_t> references_;
  std::vector<BlockId> free_;  // last one is handed out next
};

}  // namespace millrace
