// The file format of the prefix store, versions 1 and 2. Frozen: all numbers are little endian, and a reader of another
// version recreates the file.
//
//   | header | record 0 | record 1 | ... | record C-1 | slot 0 | slot 1 | ... | slot C-1 |
//     4 KiB    R bytes each                             S bytes each          all multiples of 4 KiB, for direct I/O
//
//   header: magic, version, sizes, identity of model and layout, the identity as readable text, XXH3-64 of all that
//   record: a block's record as in its image (block_image.h), zeros to 4 KiB; all zero: the slot is free
//   slot:   | layer 0 | layer 1 | ... |  a part of the image each, zeros to 4 KiB
//
// Version 2 is for blocks that are packed by importance: G adjacent slots form a chunk, in which the parts of one layer
// are contiguous, so that one request reads a layer of several blocks (the last chunk may have fewer slots):
//
//   | layer 0 of slots 0 .. G-1 | layer 1 of slots 0 .. G-1 | ... | layer 0 of slots G .. 2G-1 | ...
//
// A block is written in this order, so that a crash at any moment leaves a complete record or none:
//
//   zero the record (if it held one) -> sync -> write the slot -> sync -> write the record
//
// A torn write fails its checksums; the slot is then free, or the block is recomputed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/tiers/block_image.h"

namespace millrace {

inline constexpr int64_t kStorePage = 4096;
inline constexpr int64_t kStoreChunkBytes = 256 << 10;  // bytes of one layer in a chunk of version 2; frozen

// The order in which blocks are assigned slots and loaded.
enum class StoreOrder {
  arrival,     // in eviction order; loaded in prompt order
  importance,  // blocks evicted together by falling attention mass; loaded so too (Chen et al., 2025, IMPRESS)
};
Result<StoreOrder> find_store_order(std::string_view name);  // Errors: user

// Sizes and offsets in a file, from the pool's layout and the maximum file size.
struct StoreGeometry : ImageShape {
  std::vector<int64_t> part_at;  // offset in the slot; one more than layers, the last is slot_bytes
  int64_t record_bytes = 0, slot_bytes = 0;
  int64_t capacity = 0;     // slots
  int64_t chunk_slots = 1;  // above 1: the parts of this many slots are stored together, layer by layer

  uint32_t version() const { return chunk_slots > 1 ? 2 : 1; }
  int64_t padded(int64_t layer) const {
    return part_at[static_cast<size_t>(layer) + 1] - part_at[static_cast<size_t>(layer)];
  }
  int64_t record_at(int64_t slot) const { return kStorePage + slot * record_bytes; }
  int64_t slots_at() const { return kStorePage + capacity * record_bytes; }
  int64_t file_bytes() const { return slots_at() + capacity * slot_bytes; }
  // Offset of a slot's part. Version 1 stores a slot's parts contiguously, version 2 a chunk's parts of one layer.
  int64_t place(int64_t slot, int64_t layer) const {
    const int64_t first = slot / chunk_slots * chunk_slots, members = std::min(chunk_slots, capacity - first);
    return slots_at() + first * slot_bytes + members * part_at[static_cast<size_t>(layer)] +
           (slot - first) * padded(layer);
  }
  bool same_chunk(int64_t a, int64_t b) const { return a / chunk_slots == b / chunk_slots; }

  // Errors: user (not even one block fits into `bytes`).
  static Result<StoreGeometry> create(const KvLayout& layout, int64_t bytes, StoreOrder order = StoreOrder::arrival);
};

enum class HeaderState { blank, good, stale, foreign };  // stale: ours, of another version or identity, or damaged

// `page` has kStorePage bytes.
void encode_header(const StoreGeometry& geometry, std::string_view identity_text, std::span<uint8_t> page);
HeaderState decode_header(std::span<const uint8_t> page, const StoreGeometry& geometry, const StoreIdentity& identity);

}  // namespace millrace
