// BlockImage: the encoding of a block of keys and values outside the pool, for files and for other machines. It has the
// block's identity and checksums, so that a reader accepts only the bytes that were written, of the block it wanted,
// from an engine of the same model and layout. Frozen; all numbers are little endian.
//
//   image:  | record | part of layer 0 | part of layer 1 | ... |        without gaps; a file pads both
//   record: magic, importance (0: not known), sequence number, key, parent key, the block's tokens, XXH3-64 of each
//           part, XXH3-64 of the record with its place and the identity as seed; all zero: there is no block
//   part:   [K, V][head][token in block][row bytes]
//
// A part's sum is seeded with its block's key and layer, so bytes of another block or layer do not match. Stateless.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/pool.h"
#include "kv/prefix_key.h"

namespace millrace {

// Model and layout of the bytes in an image.
struct StoreIdentity {
  uint64_t low = 0, high = 0;  // hash of the text
  bool operator==(const StoreIdentity&) const = default;
};
StoreIdentity store_identity(std::string_view text);
// The text of an identity, at most some 2 KiB: the layout, then the model. The end of a longer text is hashed.
std::string identity_text(const KvLayout& layout, std::string_view model);

// Sizes of an image's parts, from the pool's layout.
struct ImageShape {
  int64_t block_tokens = 0;
  std::vector<int64_t> part_bytes;  // bytes of each layer

  static ImageShape of(const KvLayout& layout);
  int64_t layers() const { return static_cast<int64_t>(part_bytes.size()); }
  int64_t head_bytes() const { return kHeadBytes + 4 * block_tokens + 8 * layers(); }  // bytes of a record
  int64_t parts_bytes() const { return std::accumulate(part_bytes.begin(), part_bytes.end(), int64_t{0}); }
  int64_t image_bytes() const { return head_bytes() + parts_bytes(); }

  static constexpr int64_t kHeadBytes = 64;  // bytes of a record before its tokens and sums
};

// One stored block, as described by its record.
struct StoreRecord {
  uint64_t sequence = 0;  // ascends with every write to a file
  PrefixKey key, parent;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> sums;  // one for each part
  float importance = 0;        // attention mass relative to an even share; 0: not known
};
enum class RecordState { empty, good, bad };

// `place`: the slot in a file, or kNoPlace. The record takes all of `out` or `bytes`, with zeros at its end.
inline constexpr int64_t kNoPlace = -1;
void encode_record(const ImageShape& shape, const StoreIdentity& identity, int64_t place, const StoreRecord& record,
                   std::span<uint8_t> out);
RecordState decode_record(const ImageShape& shape, const StoreIdentity& identity, int64_t place,
                          std::span<const uint8_t> bytes, StoreRecord& record);
// Recomputes the sum of a record whose other bytes were modified; for tests and fuzzing.
void seal_record(const StoreIdentity& identity, int64_t place, std::span<uint8_t> bytes);

uint64_t part_sum(const PrefixKey& key, int64_t layer, std::span<const uint8_t> part);

// Copies the block's parts into an image of image_bytes(), whose record is still missing.
void copy_parts_out(KvPool& pool, BlockId block, const ImageShape& shape, std::span<uint8_t> image);
// Completes an image whose parts are there: computes their sums, which it returns in `record`, and writes the record.
void seal_image(const ImageShape& shape, const StoreIdentity& identity, StoreRecord& record, std::span<uint8_t> image);
// Returns true if the bytes are a complete and intact image of the block that `link` describes.
bool is_image_of(const ChainLink& link, const ImageShape& shape, const StoreIdentity& identity,
                 std::span<const uint8_t> image);
// Copies the parts of an intact image into the block.
void copy_parts_in(KvPool& pool, BlockId block, const ImageShape& shape, std::span<const uint8_t> image);

}  // namespace millrace
