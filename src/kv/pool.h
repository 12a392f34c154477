// KvPool: keys and values in reference-counted blocks. It deals in ids, counts and bytes; it knows nothing of requests
// or policies. Not thread-safe: owned by the engine thread; workers only read and write block bytes.
//
// Two modes share the same ids. `paged`: one id per block of memory; a stream is assigned any free block. `virtual`:
// many more ids than memory, divided into ranges as long as the longest stream; a stream's own blocks are contiguous in
// its range, and pages are committed when written and returned when another range needs them (virtual_ranges.h). In
// both modes free_blocks() + referenced blocks == total_blocks(), which is what the memory holds.
//
// One buffer a layer:  [K, V][kv_head][block id][token in block][row_bytes]
//
// Layers that see only a window may have their own blocks, in further groups (window_groups.h). A group is a pool
// inside the pool, with its own ids. A stream returns its first blocks there as its window moves on.
//
// If layers store different numbers of tokens, every layer is a group (KvLayout::groups) with its own block table. A
// block then belongs to one group; ids, free blocks and memory are counted over all groups together. There is one
// buffer: [K, V][kv_head][block id][token in block][row_bytes]. If heads store different numbers, a layer of the pool
// is one KV head of a layer of the model.
//
// With a codec (kv/codec.h), a tile takes the place of a block's rows in one head, and each stream has a slot of the
// StatePool for its tail, the raw rows of its newest tokens:  [K, V][kv_head][token % tail_tokens][f16 row]. One slot
// holds the tails of all groups.
//
// Where values are parts of their keys (KvLayer::values_in_keys), there are no planes V, and values() returns keys().
//
// With residuals (KvLayout::residual_below) there are twice as many planes: [K, V, residuals of K, residuals of V]. A
// residual is what rounding left of a row.
//
// If not all blocks fit (KvPoolOptions::resident), blocks from a number on have memory in a few layers at a time
// (kv/staged_layers.h): the layers take turns in it, and tiers/layer_file.h has their bytes in between.
//
// Blocks of one head are adjacent, and a fresh pool assigns ids in ascending order: attention reads a lone stream's
// keys as one run of memory, which the hardware prefetcher follows. If a block stored all heads, a head's keys would be
// pieces of 16 tokens, and the distance between pieces would be a block of all heads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/format.h"
#include "kv/codec.h"
#include "kv/row_residuals.h"
#include "kv/staged_layers.h"
#include "kv/state_pool.h"
#include "kv/virtual_ranges.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

// Rows that an attention pattern stores next to the keys of a layer (attention/pattern_layers.h). They are rows of the
// layout's format, without tiles, tails or residuals.
struct KvSide {
  enum class Rows { tokens, blocks };  // a row for each token, or a summary of each block

  int64_t layer = 0;  // the layer whose keys the rows belong to
  Rows rows = Rows::tokens;
};

// Keys and values of every token, a state of fixed size per stream, or both. A layer without heads and state is stored
// in another group of the pool, or nowhere.
struct KvLayer {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t state_values = 0;  // f32
  int64_t window = 0;        // keys that a token sees, its own included; 0: all
  // Latent attention: a value is the first numbers of its key, and needs no further bytes.
  bool values_in_keys = false;
  bool simulated = false;           // its heads have no dims: blocks are counted, and have no bytes
  std::optional<KvSide> side = {};  // empty: keys and values of the model, not rows of a pattern
  int64_t heads_each = 1;           // query heads that share a KV head

  // Returns true if nothing of the layer is stored here.
  bool absent() const { return kv_heads == 0 && head_dim == 0 && state_values == 0; }
  bool summarizes_blocks() const { return side && side->rows == KvSide::Rows::blocks; }
  // Arrays of each head: keys, and values.
  int64_t planes() const { return simulated ? 0 : values_in_keys ? 1 : 2; }
};

// Layers that share one block table of a stream.
struct KvGroup {
  static constexpr int64_t kAllHeads = -1;

  std::vector<int64_t> layers = {};  // indices in KvLayout::layers
  int64_t head = kAllHeads;          // the KV head of a layer of the model that the group stores
};

struct KvLayout {
  const Format* format = nullptr;  // format of rows; with a codec, of raw and decoded rows
  int64_t block_tokens = 16;
  std::vector<KvLayer> layers;
  std::shared_ptr<const KvCodec> codec = nullptr;  // null: a block is rows of `format`
  int64_t tail_tokens = 0;                         // codec: raw rows of one stream, whole blocks
  const Format* value_format = nullptr;            // format of values; null: `format`
  int64_t window = 0;                              // no layer sees more keys; 0: at least one sees all
  int64_t most_held = 0;                           // with a window: tokens whose blocks a stream holds at once
  std::vector<KvLayout> windows = {};              // further groups (window_groups.h), each with all of the layers
  // Groups that take their blocks from one set of ids. Each has one layer, and all layers are alike. Empty: one group
  // of all layers.
  std::vector<KvGroup> groups = {};
  // Above 0: each row has a residual (kv/row_residuals.h). A query whose largest attention weight is below this value
  // reads the residuals, too.
  double residual_below = 0;

  // Selects `with` (not null) to encode blocks from now on: sets the format, raises the block size to what the codec
  // needs, and makes the tail long enough to run `drafted` tokens and take them back.
  void encode_with(std::shared_ptr<const KvCodec> with, int64_t drafted = 0);
  // Divides the layers into groups of one layer.
  void use_layer_tables();
  // Divides the layers into groups of one KV head. A layer here then is one head of a layer of the model. Errors:
  // unsupported (layers with different heads).
  Result<void> use_per_head_tables();
  // Raises the block size of all groups of a virtual pool to whole pages. Errors: unsupported (a codec, because
  // encode_with() chose the sizes of its tail and tiles).
  Result<void> use_whole_pages(int64_t page_bytes);
  int64_t residual_blocks() const { return (codec->residual() + block_tokens - 1) / block_tokens; }
  const Format* values() const { return value_format ? value_format : format; }
  std::string format_name() const;
  std::string codec_name() const;  // name of the codec of the first group that has one; "" if none does
  bool recurrent() const;          // some layers
  // Returns true if blocks of one table are enough to continue a stream after them: it needs neither a state, nor raw
  // rows of their tokens, nor a table of another layer.
  bool prefixes_shared() const;
  bool encodes() const;        // some group has a codec
  bool has_residuals() const;  // some group has them
  bool stores_residuals(const KvLayer& layer) const { return residual_below > 0 && !layer.side; }
  bool divided() const { return !groups.empty(); }  // into groups with the same set of ids
  // Block tables of a stream whose blocks have this layout's set of ids.
  int64_t tables() const { return divided() ? std::ssize(groups) : 1; }
  // Block tables of a stream for one layer of the model; above 1: each of its KV heads is a layer here.
  int64_t tables_per_layer() const { return divided() ? std::max<int64_t>(1, groups.back().head + 1) : 1; }

  int64_t tile_bytes(const KvLayer& layer, KvPart part = KvPart::keys) const;  // one block of one head
  int64_t block_bytes(const KvLayer& layer) const;  // one block of all heads, keys and values
  // Returns the bytes of one block, keys and values, in all layers here; in a divided layout, of one layer.
  int64_t block_bytes() const;
  int64_t bytes_per_token() const;
  // Number of KV heads of the layers before this one in this group, without the layers of patterns. For a layer of a
  // pattern: of the pattern layers before it.
  int64_t heads_before(int64_t layer) const;
  int64_t heads() const { return heads_before(std::ssize(layers)); }
  std::vector<int64_t> state_values() const;  // f32 values of each layer's state or tail
  int64_t state_bytes() const;                // bytes of one stream in all layers; 0: neither states nor tails
  std::string state_name() const { return encodes() ? "KV tails" : "recurrent states"; }  // as an account
  Result<void> check() const;  // head_dim is whole format blocks, tails are long enough, sizes do not overflow
  // The smallest block size >= block_tokens at which one head's rows fill whole pages in every layer.
  int64_t page_block_tokens(int64_t page_bytes) const;

 private:
  void set_block_tokens(int64_t tokens);   // sets it for all groups
  Result<void> check_groups() const;       // the layers of a divided layout are alike
  Result<void> check_equal_heads() const;  // a part of check_groups()
};

inline constexpr int64_t kMaxBlockTokens = 65536;

// For a group inside a pool: the pool holds the states of all layers.
inline constexpr int64_t kStatesElsewhere = -1;

enum class KvPoolMode { paged, virtual_ranges };

struct KvPoolOptions {
  KvPoolMode mode = KvPoolMode::paged;
  int64_t longest = 0;  // contiguous: tokens of the longest stream; the length of a range
  int64_t streams = 8;  // contiguous: approximate number of streams that own a range at once
  int64_t states = 0;   // recurrent layers, or a codec: slots of the StatePool
  int64_t marks = 0;    // those of `states` that hold the states behind drafted tokens
  int64_t copies = 0;   // further slots, for the prefix index
  int64_t swapped = 0;  // window groups: streams in a tier, which keep their blocks of those groups
  // Blocks of the first group that the tier holds. Each stream has at least as many of them as of any other group.
  int64_t swapped_blocks = INT64_MAX;
  // Streams may drop tokens of the first group (kv/token_eviction.h), and then hold more blocks of window groups.
  bool evicts = false;
  // Blocks that have memory in every layer; the layers take turns in the memory of the others (kv/staged_layers.h).
  // Both numbers of blocks are multiples of staged_multiple(). Only paged pools.
  int64_t resident = kAllResident;
};
// "paged" or "virtual". Errors: user.
Result<KvPoolMode> find_kv_pool_mode(const std::string& name);

// Number of ids in a contiguous pool.
int64_t kv_pool_ids(const KvLayout& layout, int64_t blocks, const KvPoolOptions& options);
// For a pool whose first group has `blocks` blocks: the number of blocks of another group, and the bytes of all groups.
int64_t window_group_blocks(const KvLayout& group, int64_t blocks, const KvPoolOptions& options);
int64_t kv_pool_bytes(const KvLayout& layout, int64_t blocks, const KvPoolOptions& options);

class KvPool {
 public:
  // Errors: user (layout; in a contiguous pool, a block that is not whole pages), resource (memory, address space).
  static Result<KvPool> create(KvLayout layout, int64_t blocks, const KvPoolOptions& options = {});

  const KvLayout& layout() const { return layout_; }
  int64_t total_blocks() const { return total_blocks_; }  // number of blocks that fit the memory
  int64_t free_blocks() const {
    return is_virtual_ ? total_blocks_ - ranges_.in_use() : static_cast<int64_t>(free_.size());
  }
  int64_t ids() const { return static_cast<int64_t>(references_.size()); }  // ids are [0, ids())
  int64_t bytes() const;                                                    // bytes of all groups
  // Blocks that have pages, in use or not; in a paged pool, all of them.
  int64_t committed_blocks() const { return is_virtual_ ? ranges_.committed() : total_blocks_; }
  bool huge_pages() const { return huge_pages_; }  // requested; the system may have none

  Result<BlockId> allocate();  // one reference; errors: resource when none is free
  // The next block of a stream that owns a range. Close the range when the stream releases its blocks.
  Result<BlockId> allocate(KvRange& range);
  void close(KvRange& range) {
    if (is_virtual_) ranges_.close(range);
  }
  void share(BlockId block) { ++references_[block]; }
  void release(BlockId block);  // returns to the free list at zero references
  int32_t references(BlockId block) const { return references_[block]; }
  void copy(BlockId from, BlockId to);  // every layer's bytes, in this group
  // From now on copy() calls `copy` instead, for pools with staged layers.
  void copy_by(std::function<void(BlockId from, BlockId to)> copy) { copier_ = std::move(copy); }
  // Slot kept[i] of the stream with this block table becomes its slot i, in every layer of the group; `kept` is
  // ascending. With `heads` > 1, which is layout().heads(), `kept` is [heads, tokens]: each head of each layer has its
  // own slots. No other stream may hold those blocks. Not with a codec. Rows of attention patterns stay where they are,
  // and must be computed again. `group`: the group of a divided layout whose table it is; only the entries of `kept`
  // that belong to its heads are read.
  void compact(std::span<const BlockId> table, std::span<const int32_t> kept, int64_t heads = 1, int64_t group = 0);
  // Copies slot `from` of the stream to its slot `to`, in every layer of a group, of which `table` is the stream's
  // block table. No other stream may hold the block of slot `to`. Not with a codec.
  void copy_slot(int64_t group, std::span<const BlockId> table, int64_t from, int64_t to);
  Result<void> check() const;  // the pool's counts agree with its references

  // Start of one head's rows, block_tokens rows of row_bytes(), or of its tile.
  uint8_t* keys(int64_t layer, BlockId block, int64_t head) {
    return first_[layer] + (head * ids() + block) * tile_bytes_[layer];
  }
  uint8_t* values(int64_t layer, BlockId block, int64_t head) {
    if (layout_.layers[layer].values_in_keys) return keys(layer, block, head);
    return first_[layer] + layout_.layers[layer].kv_heads * ids() * tile_bytes_[layer] +
           (head * ids() + block) * value_tile_bytes_[layer];
  }
  // Bytes from a row of keys or values to its residual; 0: there are none.
  int64_t residual_bytes(int64_t layer) const { return residual_bytes_[layer]; }
  ResidualReads& residual_reads() const { return *residual_reads_; }  // counters of all groups; only with residuals
  // Planes of each head, one after the other: 0: keys, 1: values; then their residuals.
  int64_t planes(int64_t layer) const {
    return layout_.layers[layer].planes() * (layout_.stores_residuals(layout_.layers[layer]) ? 2 : 1);
  }
  uint8_t* plane(int64_t layer, BlockId block, int64_t kind, int64_t head) {
    const int64_t own = layout_.layers[layer].planes(), residual = kind / own * residual_bytes(layer);
    return (kind % own == 0 ? keys(layer, block, head) : values(layer, block, head)) + residual;
  }
  int64_t plane_row_bytes(int64_t layer, int64_t kind) const {
    return kind % layout_.layers[layer].planes() == 0 ? row_bytes(layer) : value_row_bytes(layer);
  }
  int64_t plane_tile_bytes(int64_t layer, int64_t kind) const {
    return kind % layout_.layers[layer].planes() == 0 ? tile_bytes(layer) : value_tile_bytes(layer);
  }
  int64_t row_bytes(int64_t layer) const { return row_bytes_[layer]; }
  // bytes of all rows of a tile, or of its encoding
  int64_t tile_bytes(int64_t layer) const { return tile_bytes_[layer]; }
  int64_t value_row_bytes(int64_t layer) const { return value_row_bytes_[layer]; }
  int64_t value_tile_bytes(int64_t layer) const { return value_tile_bytes_[layer]; }

  // Groups of layers, each with its own block table: 0 is of this pool, the others are of layers with a window and have
  // their own blocks. The groups of a divided layout all are of this pool.
  int64_t groups() const { return layout_.tables() + static_cast<int64_t>(windows_.size()); }
  KvPool& group(int64_t index) { return is_here(index) ? *this : windows_[static_cast<size_t>(index - 1)]; }
  const KvPool& group(int64_t index) const { return is_here(index) ? *this : windows_[static_cast<size_t>(index - 1)]; }
  int64_t group_of(int64_t layer) const { return group_of_.empty() ? 0 : group_of_[static_cast<size_t>(layer)]; }
  bool divided() const { return layout_.divided(); }
  // Returns the pool's layer for layer `index` of a model whose first layer here is `first`; if heads have their own
  // tables, the layer of its first head.
  int64_t layer_of(int64_t first, int64_t index) const { return first + index * layout_.tables_per_layer(); }
  KvPool& of(int64_t layer) { return group(group_of(layer)); }
  bool gives_back() const { return layout_.window > 0 || !windows_.empty(); }  // blocks behind a window
  bool evicts() const { return evicts_; }                                      // KvPoolOptions

  // Blocks [0, resident_blocks()) have memory in every layer. The other blocks have it in a layer while it is the
  // layer's turn (staged()).
  int64_t resident_blocks() const { return std::min(staged_.resident, ids()); }
  const StagedLayers& staged() const { return staged_; }

  // The states of the recurrent layers, or the tails of a codec; empty where there are neither.
  StatePool& states() { return states_; }
  const StatePool& states() const { return states_; }
  uint8_t* tail(int64_t layer, StateId slot) { return reinterpret_cast<uint8_t*>(states_.values(layer, slot)); }

  // Blocks of one table for `tokens` tokens.
  int64_t blocks_for(int64_t tokens) const { return (tokens + layout_.block_tokens - 1) / layout_.block_tokens; }

 private:
  Result<void> add_groups(const KvLayout& layout, const KvPoolOptions& options);
  bool is_here(int64_t group) const { return group < layout_.tables(); }
  // Calls use(layer) for every layer of a group that is here.
  template <typename Use>
  void for_layers(int64_t group, const Use& use) const {
    if (layout_.divided()) {
      for (const int64_t layer : layout_.groups[static_cast<size_t>(group)].layers) use(layer);
    } else {
      for (int64_t layer = 0; layer < std::ssize(layout_.layers); ++layer) use(layer);
    }
  }

  void move_rows(int64_t layer, int64_t head, std::span<const BlockId> table, size_t from, size_t to, size_t count);
  void give_back(BlockId first, int64_t count);
  void use_huge_pages();

  KvLayout layout_;
  int64_t total_blocks_ = 0;
  int64_t small_blocks_ = INT64_MAX;  // ids from this one on make the pages huge
  bool is_virtual_ = false;
  bool huge_pages_ = false;
  bool evicts_ = false;
  std::vector<int64_t> row_bytes_, tile_bytes_, value_row_bytes_, value_tile_bytes_, residual_bytes_;
  std::shared_ptr<ResidualReads> residual_reads_;
  std::vector<AlignedBuffer> buffers_;
  std::vector<uint8_t*> first_;  // buffer of each layer, or the one that all layers share
  std::vector<int32_t> references_;
  std::vector<BlockId> free_;  // paged: handed out from the back
  VirtualRanges ranges_;
  StagedLayers staged_;
  std::function<void(BlockId, BlockId)> copier_;
  StatePool states_;
  std::vector<KvPool> windows_;    // the other groups
  std::vector<int32_t> group_of_;  // by layer; empty: all layers are of group 0
};

}  // namespace millrace
