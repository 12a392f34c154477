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
//
// A copy of the recurrent state behind a block is divided into pieces of an image's size, and each piece is the image
// of a block that follows the state's one (StatePiece). So stores hold states as they hold blocks. Where blocks have no
// bytes, because every layer is recurrent, an image has one part of kStatePieceBytes, and that of a block is all zero.
//
//   state:  | layer 0 | layer 1 | ... |   values of a slot (state_pool.h)
//   pieces: |  piece 0  |  piece 1  | ... |  zeros
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
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

inline constexpr int64_t kStatePieceBytes = 16 << 10;  // frozen

// Sizes of an image's parts, from the pool's layout.
struct ImageShape {
  int64_t block_tokens = 0;
  std::vector<int64_t> part_bytes;  // bytes of each layer
  int64_t state_bytes = 0;          // bytes of a copy of the recurrent state; 0: there are no recurrent layers
  bool empty_blocks = false;        // blocks have no bytes

  static ImageShape of(const KvLayout& layout);
  int64_t layers() const { return static_cast<int64_t>(part_bytes.size()); }
  int64_t head_bytes() const { return kHeadBytes + 4 * block_tokens + 8 * layers(); }  // bytes of a record
  int64_t parts_bytes() const { return std::accumulate(part_bytes.begin(), part_bytes.end(), int64_t{0}); }
  int64_t image_bytes() const { return head_bytes() + parts_bytes(); }
  int64_t state_pieces() const {  // images of one copy of the state
    return state_bytes == 0 ? 0 : (state_bytes + parts_bytes() - 1) / parts_bytes();
  }

  static constexpr int64_t kHeadBytes = 64;  // bytes of a record before its tokens and sums
};

// Where the bytes of an image are in the pool: in a block, or in a slot of the state pool.
struct ImagePlace {
  ImagePlace(BlockId of) : block(of) {}
  ImagePlace(StateId slot, int64_t at) : state(slot), piece(at) {}

  BlockId block = -1;  // -1: a piece of a state
  StateId state = -1;  // slot of the state
  int64_t piece = 0;   // which piece of it
};

// The link under which a piece of the state behind a block is stored: the state's block is its parent. Its tokens are
// in no prompt and name the piece, so no piece is taken for a block or for another piece.
class StatePiece {
 public:
  StatePiece(const PrefixKey& behind, int64_t piece, int64_t block_tokens)
      : tokens_(static_cast<size_t>(block_tokens), kFillToken + 1 + static_cast<TokenId>(piece)),
        link_{next_key(behind, tokens_), behind, tokens_} {}
  StatePiece(const StatePiece&) = delete;
  StatePiece& operator=(const StatePiece&) = delete;
  const ChainLink& link() const { return link_; }

 private:
  std::vector<TokenId> tokens_;
  ChainLink link_;
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

// Copies one part of an image from the pool or to the pool. `part`: part_bytes of the layer.
void copy_part_out(KvPool& pool, const ImagePlace& from, const ImageShape& shape, int64_t layer, uint8_t* part);
void copy_part_in(KvPool& pool, const ImagePlace& to, const ImageShape& shape, int64_t layer, const uint8_t* part);

// Copies all parts into an image of image_bytes(), whose record is still missing.
void copy_parts_out(KvPool& pool, const ImagePlace& from, const ImageShape& shape, std::span<uint8_t> image);
// Completes an image whose parts are there: computes their sums, which it returns in `record`, and writes the record.
void seal_image(const ImageShape& shape, const StoreIdentity& identity, StoreRecord& record, std::span<uint8_t> image);
// Returns true if the bytes are a complete and intact image of the block that `link` describes.
bool is_image_of(const ChainLink& link, const ImageShape& shape, const StoreIdentity& identity,
                 std::span<const uint8_t> image);
// The key of the previous block that the record of an image names; nothing if the bytes are too few for a record.
std::optional<PrefixKey> parent_in_image(std::string_view image);
// Copies the parts of an intact image into the pool.
void copy_parts_in(KvPool& pool, const ImagePlace& to, const ImageShape& shape, std::span<const uint8_t> image);

}  // namespace millrace
