// The file of the prefix store, version 1. Frozen: every number is little endian, and a reader of another version makes
// the file anew.
//
//   | header | record 0 | record 1 | ... | record C-1 | slot 0 | slot 1 | ... | slot C-1 |
//     4 KiB    R bytes each                             S bytes each          all multiples of 4 KiB, for direct I/O
//
//   header: magic, version, sizes, identity of model and layout, the same as text for people, XXH3-64 of all that
//   record: magic, sequence number, key, parent key, the block's tokens, XXH3-64 of each part of the slot, XXH3-64 of
//           the record with its slot number and the file's identity as seed; all zero: the slot is free
//   slot:   | layer 0 | layer 1 | ... |  a part each: [K, V][head][token in block][row bytes], zeros to 4 KiB
//
// A part's sum is seeded with its block's key and layer, so that neither bytes of another block nor of another layer
// pass for it. How a block gets in, so that a crash at any moment leaves a whole record or none:
//
//   zero the record (if it held one) -> sync -> write the slot -> sync -> write the record
//
// What is torn all the same does not pass its sums, and is a free slot or a block that is computed again.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/pool.h"
#include "kv/prefix_key.h"

namespace millrace {

inline constexpr int64_t kStorePage = 4096;
inline constexpr uint32_t kStoreVersion = 1;

// What model and layout the bytes of a file belong to.
struct StoreIdentity {
  uint64_t low = 0, high = 0;  // hash of the text
  bool operator==(const StoreIdentity&) const = default;
};
StoreIdentity store_identity(std::string_view text);

// Sizes and places in a file, from the pool's layout and the bytes that it may have.
struct StoreGeometry {
  int64_t block_tokens = 0;
  std::vector<int64_t> part_bytes;  // of each layer, without the zeros behind it
  std::vector<int64_t> part_at;     // in the slot; one more than layers, the last is slot_bytes
  int64_t record_bytes = 0, slot_bytes = 0;
  int64_t capacity = 0;             // slots

  int64_t layers() const { return static_cast<int64_t>(part_bytes.size()); }
  int64_t padded(int64_t layer) const { return part_at[static_cast<size_t>(layer) + 1] - part_at[static_cast<size_t>(layer)]; }
  int64_t record_at(int64_t slot) const { return kStorePage + slot * record_bytes; }
  int64_t slot_at(int64_t slot) const { return kStorePage + capacity * record_bytes + slot * slot_bytes; }
  int64_t file_bytes() const { return slot_at(capacity); }

  // Errors: user (not even one block fits into `bytes`).
  static Result<StoreGeometry> create(const KvLayout& layout, int64_t bytes);
};

// One stored block, as its record says.
struct StoreRecord {
  uint64_t sequence = 0;  // ascends with every write to the file
  PrefixKey key, parent;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> sums;  // of each part
};

enum class HeaderState { blank, good, stale, foreign };  // stale: ours, of another version or identity, or damaged
enum class RecordState { empty, good, bad };

// `page` has kStorePage bytes, `out` a record's.
void encode_header(const StoreGeometry& geometry, std::string_view identity_text, std::span<uint8_t> page);
HeaderState decode_header(std::span<const uint8_t> page, const StoreGeometry& geometry, const StoreIdentity& identity);
void encode_record(const StoreGeometry& geometry, const StoreIdentity& identity, int64_t slot, const StoreRecord& record, std::span<uint8_t> out);
RecordState decode_record(const StoreGeometry& geometry, const StoreIdentity& identity, int64_t slot, std::span<const uint8_t> bytes, StoreRecord& record);
// Puts the right sum into a record whose other bytes somebody changed; for tests and fuzzing.
void seal_record(const StoreIdentity& identity, int64_t slot, std::span<uint8_t> bytes);

uint64_t part_sum(const PrefixKey& key, int64_t layer, std::span<const uint8_t> part);

}  // namespace millrace
