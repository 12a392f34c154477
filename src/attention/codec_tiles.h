// CodecTiles: attention over a KV cache that a codec encodes (kv/codec.h). New rows are stored as raw f16. The parts of
// the encoding that depend on one row alone are encoded when the row is stored; the other parts are encoded when the
// row's block is complete. An encoded block of one head is a tile. Attention runs over tiles and raw rows, with a
// kernel that reads the levels of a tile. If the kernel table or the codec has no such kernel, it runs the f16 kernel
// over decoded tiles. The choice between a raw and an encoded row depends on the query's slot and the row's slot alone,
// so results do not depend on prefill chunks, the batch or threads.
//
// Raw rows are in the stream's tail, a ring. If a chunk is too long for the ring, its rows are in this object's window
// while a layer runs. The chunk's last rows are then copied to the ring:
//
//   tail     [K, V][kv_head][slot % tail_tokens][f16 row]
//   window   [block][K, V][kv_head][token in block][f16 row]     begins with the first block that is seen raw
//
// A query of a sparse pattern sees some of the stream's blocks. The kernel numbers these blocks from 0
// (block_sparse.h), and CodecKeys::places holds the place of each in the stream. The raw blocks are the last ones, as
// without a pattern. Keys that are stored before RoPE are rotated by their places.
//
// A stream that drops tokens moves the remaining ones together (compact()). Tiles with per-token scales are moved as
// they are. Tiles with per-column scales are decoded and re-encoded with their new neighbours; each re-encoding adds a
// small rounding error. Rows of the newest tokens stay raw if they were raw for the last query.
//
// One object serves one group of the pool's layers (kv/window_groups.h). A stream's tail covers the layers of all
// groups.
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

// The keys and values that the queries of a span read, of one KV head.
struct CodecKeys {
  const BatchSpan& span;  // a span of the batch of the pass, or a part of one
  const int32_t* table;   // the stream's blocks
  int64_t head;
  const int32_t* places = nullptr;  // block i of the arguments is the stream's block places[i]; null: i

  int64_t place(int64_t block) const { return places ? places[block] : block; }
};

// The tokens that a stream keeps: slot kept[i] becomes slot i, as in KvPool::compact().
struct KeptSlots {
  std::span<const BlockId> table;
  StateId state = 0;
  int64_t stored = 0;  // number of slots before compact()
  std::span<const int32_t> kept;
  // 1: all heads keep the same tokens; > 1: `kept` is [heads, tokens], with the KV heads of all layers.
  int64_t heads = 1;
};

class CodecTiles {
 public:
  CodecTiles() = default;  // for a group without a codec
  // `tokens`: maximum number of tokens of a pass. `kv`: the pool of all groups; it must outlive this object. `ropes`:
  // by layer, for a codec that stores keys before RoPE. `context`: maximum number of tokens of a stream. Errors:
  // resource.
  static Result<CodecTiles> create(KvPool& kv, int64_t group, const KernelTable& kernels, int64_t tokens, int threads,
                                   std::span<const KeyRope> ropes = {}, int64_t context = 0);
  // Scratch bytes for one group.
  static int64_t bytes(const KvLayout& layout, int64_t tokens, int threads, std::span<const KeyRope> ropes = {},
                       int64_t context = 0);

  bool any() const { return kv_ != nullptr; }
  int64_t bytes() const { return window_.bytes() + decoded_.bytes() + turns_.bytes() + places_.bytes(); }

  // Begins a layer; called before store(). `batch`: of the whole pass.
  void begin(const Batch& batch, int64_t layer);
  // Stores the keys and values of one token of a span of that batch, for all heads. They may be read once all tokens
  // are stored and encode() has run.
  void store(const BatchSpan& chunk, int64_t token, const float* k, const float* v);
  // Called after all store() of a layer: finishes the encoding of the blocks that are now complete.
  void encode(ThreadPool& pool);

  // Called between passes: sets the layer that encoded_keys() reads.
  void at_layer(int64_t layer) { layer_ = layer; }
  // Called between passes. Not for a codec that stores keys before RoPE, because its rounding depends on the keys'
  // slots.
  void compact(const KeptSlots& slots, ThreadPool& pool);

  // Runs attention. `args`: all arguments except the blocks. If they ask for scores, keys are decoded first. `blocks`:
  // room for attention_scratch_pointers() pointers.
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
  // For queries that see single slots (attention/visible_keys.h): sets `k` and `v` to the rows of `slots`, as the query
  // at slot `query` sees them. `slots`: ascending, at most one partition. Decoded rows are valid until the worker's
  // next call.
  void point(const CodecKeys& keys, std::span<const int64_t> slots, int64_t query, int worker, const uint8_t** k,
             const uint8_t** v) const;
  // Runs the kernel over rows from point(), in the codec's basis.
  void attend_rows(const AttentionKernel& kernel, const AttentionArgs& args, int worker) const {
    kv_->layout().codec->rotates() ? run_rotated(kernel, args, worker) : kernel.run(args);
  }
  // Returns a worker's memory for CodecKeys::places.
  int32_t* places(int worker) const { return reinterpret_cast<int32_t*>(places_.data()) + worker * most_blocks_; }
  int64_t first_raw(int64_t slot) const;  // the first block that the query at `slot` sees raw

  // Return the keys of a block as f32, [block_tokens][head_dim], in the basis of unrotated queries: decoded keys, or
  // the raw rows of the span. Valid until the worker's next call.
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
  bool in_tail(const BatchSpan& chunk) const;  // true: the tail has room for all rows that the chunk's queries see raw
  int64_t window_block(const BatchSpan& chunk) const;  // index in the window of the chunk's first raw block
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
  int64_t decoded_bytes_ = 0;  // scratch bytes of one worker
  int64_t rotated_at_ = 0;     // byte offset of the rotated queries in that scratch
  int64_t kept_at_ = 0;        // byte offset of the rows for the tail in that scratch
  const Batch* batch_ = nullptr;
  int64_t layer_ = 0;
  std::vector<FullBlock> full_;       // blocks that this pass completes; a member so that its memory is reused
  std::optional<LevelTiles> levels_;  // levels of the layer's tiles, if the kernel table reads them
  std::optional<LevelTiles> later_;   // levels of tiles in blocks other than the stream's first
};

}  // namespace millrace
