// BlockFrame: the messages that nodes exchange about blocks of keys and values. Every frame has a checksum and the
// identity of model, format and arithmetic; a block's key has the tokens before it and the tenant, and its image has
// checksums of its own (tiers/block_image.h). Frozen as version 1; numbers are little endian.
//
//   | magic 4 | version 2 | kind 2 | body bytes 8 | lease 8 | identity 16 | block's key 16 | XXH3-64 of head and text 8
//   | | body |
//
//   reader                        holder
//   hello (token) ------------->                       connect: the token is that of the cluster's key
//                 <------------- welcome (image or range)      refused (text)
//   ask (lease, key) ---------->                       holds the block for this reader for a bounded time
//                 <------------- found | missing
//   fetch (lease, key) -------->                       transfer
//                 <------------- image (bytes) | range (offset, bytes of the shared memory) | missing
//   done (lease, key) --------->                       complete: the block is read
//   put (key, image) ---------->
//                 <------------- stored | missing (no room)
//
// The body of an image or a put is not in the frame's sum, because the image has sums that its reader checks. All other
// bodies are at most kMaxText bytes and are in it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/prefix_key.h"
#include "kv/tiers/block_image.h"

namespace millrace {

struct BlockFrame {
  enum class Kind : uint16_t {
    hello = 1,
    welcome,
    refused,
    ask,
    found,
    missing,
    fetch,
    image,
    range,
    done,
    put,
    stored,
  };
  static constexpr size_t kHeadBytes = 64;
  static constexpr size_t kMaxText = 1024;
  // Returns true if the frame's body is a block's image.
  static bool has_image(Kind kind) { return kind == Kind::image || kind == Kind::put; }

  Kind kind = Kind::missing;
  uint64_t lease = 0;
  StoreIdentity identity;
  PrefixKey key;
  std::string_view body;  // in a frame that was read: valid until the reader's next call
};

// Appends the frame.
void encode_frame(const BlockFrame& frame, std::string& out);
// Appends the head of a frame whose body of `bytes` the caller appends: an image.
void encode_image_head(BlockFrame::Kind kind, const StoreIdentity& identity, const PrefixKey& key, uint64_t bytes,
                       std::string& out);

// A body of a range: where a block's image is in the shared memory.
struct BlockRange {
  uint64_t offset = 0, bytes = 0;
};
std::string encode_range(const BlockRange& range);
// Nothing unless the range has `bytes` bytes and lies in a memory of `memory` bytes.
std::optional<BlockRange> decode_range(std::string_view body, uint64_t bytes, uint64_t memory);

// Cuts received bytes into frames. Bytes that are no frame make it broken, from then on for good.
class BlockFrameReader {
 public:
  // `max_image`: the longest image that is accepted, in bytes. No longer body is waited for.
  explicit BlockFrameReader(uint64_t max_image) : max_image_(max_image) {}
  void accept_images(uint64_t max_image) { max_image_ = max_image; }

  void push(std::string_view bytes);
  // Memory for at least `bytes` received bytes; taken() says how many of them there are.
  std::span<char> room(size_t bytes);
  void taken(size_t bytes) { end_ += bytes; }
  std::optional<BlockFrame> next();  // nothing: incomplete, or broken
  bool broken() const { return broken_; }
  size_t held_bytes() const { return end_ - at_; }

 private:
  uint64_t max_image_;
  bool broken_ = false;
  std::vector<char> bytes_;
  size_t at_ = 0, end_ = 0;  // begin of the next frame, end of the received bytes
};

}  // namespace millrace
