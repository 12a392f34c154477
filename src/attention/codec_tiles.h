// CodecTiles: attention over a KV cache that a codec encodes (kv/codec.h). It stores new rows as raw f16. It encodes
// with each row what depends on that row alone, and everything else with the blocks that the rows complete. It runs
// attention over tiles and raw rows with a kernel that reads the levels of a tile. If the kernel table or the codec has
// no such kernel, it runs the f16 kernel over decoded tiles. The codec's rule says for each slot what a query sees, so
// results do not depend on prefill chunks, the batch or threads.
//
// Raw rows are in the stream's tail, a ring. If a chunk is too long for the ring, its rows are in a window of this
// object during a layer, and the last of them are then copied to the ring:
//
//   tail     [K, V][kv_head][slot % tail_tokens][f16 row]
//   window   [block of the chunk][K, V][kv_head][token in block][f16 row]     from the first block that a query sees
//   raw
//
// A query of a sparse pattern sees some of the stream's blocks. They are numbered in their order, as in block_sparse.h,
// and CodecKeys::places holds their places in the stream. Raw blocks are the last of them here, too. Keys before RoPE
// need their places.
//
// A stream that drops tokens moves the remaining ones together (compact()). Tiles with per-token scales are moved as
// they are. Tiles with per-column scales are decoded and re-encoded with their new neighbours; each re-encoding adds a
// small rounding error. Rows of the newest tokens stay raw if they were raw for the last query.
//
// One object serves one group of the pool's layers (kv/window_groups.h); the tails are those of the whole pool's
// streams.
//
// Owned by a ForwardContext. begin() and encode() are called by the thread of the pass, all other functions by any
// worker.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "attention/key_turns.h"
#include "base/thread_pool.h"
#include "flow/batch.h"
#include "kernels/kernel_table.h"
#include "kv/pool.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

// Keys and values that the queries of a span read.
struct CodecKeys {
  const BatchSpan& span;  // a span of the batch of the pass, or a part of one
  const int32_t* table;   // the stream's blocks
  int64_t head;
  const int32_t* places = nullptr;  // block i of the arguments is the stream's block places[i]; null: i

  int64_t place(int64_t block) const { return places ? places[block] : block; }
};

// The tokens that a stream keeps: slot kept[i] becomes slot i, as of KvPool::compact().
struct KeptSlots {
  std::span<const BlockId> table;
  StateId state = 0;
  int64_t stored = 0;  // slots so far
  std::span<const int32_t> kept;
  int64_t heads = 1;  // > 1: [heads, tokens], of all layers
};

class CodecTiles {
 public:
  CodecTiles() = default;  // for a group without a codec
  // For passes of up to `tokens` tokens. `kv`, of all groups, must outlive it. `ropes`: by layer, for a codec of keys
  // before RoPE, in streams of up to `context` tokens. Errors: resource.
  static Result<CodecTiles> create(KvPool& kv, int64_t group, const KernelTable& kernels, int64_t tokens, int threads,
                                   std::span<const KeyRope> ropes = {}, int64_t context = 0);
  // Scratch bytes for one group.
  static int64_t bytes(const KvLayout& layout, int64_t tokens, int threads, std::span<const KeyRope> ropes = {},
                       int64_t context = 0);

  bool any() const { return kv_ != nullptr; }
  int64_t bytes() const { return window_.bytes() + decoded_.bytes() + turns_.bytes() + places_.bytes(); }

  // Before the layer's new rows: the batch of the whole pass.
  void begin(const Batch& batch, int64_t layer);
  // Keys and values of a token of a span of that batch, all heads; not final before all are stored.
  void store(const BatchSpan& chunk, int64_t token, const float* k, const float* v);
  // After them: encodes the rest of the blocks that are complete now.
  void encode(ThreadPool& pool);

  // Between passes: encoded_keys() are of this layer.
  void at_layer(int64_t layer) { layer_ = layer; }
  // Between passes. Not with a codec of keys before RoPE, which are rounded at the positions of their slots.
  void compact(const KeptSlots& slots, ThreadPool& pool);

  // args: all but the blocks. Where they ask for scores, keys are decoded. `blocks`: room for pointers, as
  // attention_scratch_pointers() says.
  void attend(const AttentionKernel& kernel, const CodecKeys& keys, const AttentionArgs& args, int worker,
              const uint8_t** blocks) const;
  // Variant for queries of several streams that share these leading blocks: the blocks are decoded once for all of
  // them.
  void attend_encoded(const AttentionKernel& kernel, const CodecKeys& keys, const AttentionArgs& args, int worker,
                      const uint8_t** blocks) const;
  // Variant for queries that need not be neighbours. They see all of these blocks, which end at most one partition
  // before their own keys. The first `encoded` blocks are decoded once for all of them.
  void attend_before(const AttentionKernel& kernel, const CodecKeys& keys, const AttentionArgs& args, int64_t encoded,
                     int worker, const uint8_t** blocks) const;
  // For queries that see single slots (attention/visible_keys.h): points at the rows of `slots` as the query at `query`
  // sees them. `slots` are ascending, and at most a partition of them. Decoded rows are in the worker's room until its
  // next call.
  void point(const CodecKeys& keys, std::span<const int64_t> slots, int64_t query, int worker, const uint8_t** k,
             const uint8_t** v) const;
  // Then runs the kernel, whose arguments are of such rows, in the codec's basis.
  void attend_rows(const AttentionKernel& kernel, const AttentionArgs& args, int worker) const {
    kv_->layout().codec->rotates() ? run_rotated(kernel, args, worker) : kernel.run(args);
  }
  // A worker's room for CodecKeys::places of a stream.
  int32_t* places(int worker) const { return reinterpret_cast<int32_t*>(places_.data()) + worker * most_blocks_; }
  int64_t first_raw(int64_t slot) const;  // the first block that the query at `slot` sees raw

  // Keys of a block as f32, [block_tokens][head_dim], as an unrotated query meets them: decoded, or the raw rows of the
  // span. Valid until the worker's next call.
  const float* encoded_keys(const int32_t* table, int64_t head, int64_t block, int worker) const;
  const float* raw_keys(const BatchSpan& span, int64_t head, int64_t block, int worker) const;

 private:
  struct FullBlock {
    const BatchSpan* chunk;
    int64_t block;
  };

  int64_t row_bytes() const { return kv_->row_bytes(layer_); }
  int64_t heads() const { return kv_->layout().layers[static_cast<size_t>(layer_)].kv_heads; }
  int64_t head_dim() const { return kv_->layout().layers[static_cast<size_t>(layer_)].head_dim; }
  bool in_tail(const BatchSpan& chunk) const;          // all rows that its queries see raw are in the tail at once
  int64_t window_block(const BatchSpan& chunk) const;  // the window's place for the chunk's first raw block
  uint8_t* tail_block(const BatchSpan& chunk, int64_t block, int64_t plane) const;
  uint8_t* raw_block(const BatchSpan& chunk, int64_t block, int64_t plane) const;
  void copy_rows(const BatchSpan& chunk, int64_t begin, int64_t end, bool to_tail) const;
  void encode_token(KvPart part, const BatchSpan& chunk, int64_t slot, int64_t head, const uint8_t* raw) const;
  void encode_block(KvPart part, const BatchSpan& chunk, int64_t block, int64_t head, int worker) const;
  uint8_t* tile_of(KvPart part, const BatchSpan& chunk, int64_t block, int64_t head) const;
  int64_t raw_from(const CodecKeys& keys, int64_t slot) const;
  void decode(const CodecKeys& keys, int64_t begin, int64_t end, int64_t first, bool values, int worker) const;
  void decode_values(const int32_t* table, int64_t head, int64_t block, uint8_t* rows) const;
  void compact_part(const KeptSlots& slots, std::span<const int32_t> kept, KvPart part, int64_t head, int worker) const;
  void move_tokens(const KeptSlots& slots, std::span<const int32_t> kept, KvPart part, int64_t head) const;
  void decode_keys(const int32_t* table, int64_t head, int64_t block, uint8_t* rows) const;
  const float* unrotated(const uint8_t* rows, int worker) const;
  void run_blocks(const AttentionKernel& kernel, const CodecKeys& keys, AttentionArgs& args, int64_t raw, int64_t ahead,
                  int worker, const uint8_t** blocks) const;
  void rotate_keys(int64_t block, uint8_t* rows, bool back) const;
  void run_rotated(const AttentionKernel& kernel, const AttentionArgs& args, int worker) const;
  void run_rows(const AttentionKernel& kernel, const AttentionArgs& args) const;
  uint8_t* decoded(int worker) const { return decoded_.data() + worker * decoded_bytes_; }

  KvPool* kv_ = nullptr;    // the pool of the group
  KvPool* pool_ = nullptr;  // the pool of all groups, which has the tails
  int64_t group_ = 0;
  const KernelTable* kernels_ = nullptr;
  const RowCodec* f16_ = nullptr;
  int64_t block_tokens_ = 0, tail_tokens_ = 0, residual_blocks_ = 0;
  int64_t most_blocks_ = 0;  // maximum number of blocks in a stream
  mutable AlignedBuffer window_, decoded_, places_;
  KeyTurnTables turns_;        // for codecs of keys before RoPE
  int64_t decoded_bytes_ = 0;  // room of one worker
  int64_t rotated_at_ = 0;     // where a worker's rotated queries are in its room
  int64_t kept_at_ = 0;        // where the worker's rows for the tail are
  const Batch* batch_ = nullptr;
  int64_t layer_ = 0;
  std::vector<FullBlock> full_;       // full blocks of the pass in this layer; a member so that its memory is kept
  std::optional<LevelTiles> levels_;  // levels of the layer's tiles, if the kernel table reads them
  std::optional<LevelTiles> later_;   // levels of tiles in blocks other than the stream's first
};

}  // namespace millrace
