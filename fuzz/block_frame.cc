// Fuzzes the frames that nodes exchange about blocks: any bytes, in parts of any size, are frames or break the reader,
// and never make it keep more than one frame. Whatever is a frame encodes to the bytes it was read from. The first byte
// selects the size of the parts, and whether the head of each frame receives a valid checksum, which reaches the code
// behind the check. The rest of the input is also read as a ticket and as a range of memory.
#include "kv/transfer/block_frame.h"

#include <xxhash.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kv/transfer/block_ticket.h"

namespace {

using namespace millrace;

constexpr uint64_t kMaxImage = 4096;
constexpr size_t kSumAt = BlockFrame::kHeadBytes - 8;

// Writes the sum of the frame that begins at `at`, if its length is sane. Returns the begin of the next one.
size_t seal_frame(std::string& bytes, size_t at) {
  if (bytes.size() - at < BlockFrame::kHeadBytes) return bytes.size();
  uint16_t kind = 0;
  uint64_t body = 0;
  std::memcpy(&kind, bytes.data() + at + 6, sizeof kind);
  std::memcpy(&body, bytes.data() + at + 8, sizeof body);
  const uint64_t left = bytes.size() - at - BlockFrame::kHeadBytes;
  if (body > left) return bytes.size();
  const bool image = BlockFrame::has_image(static_cast<BlockFrame::Kind>(kind));
  const uint64_t head = XXH3_64bits(bytes.data() + at, kSumAt);
  const uint64_t sum =
      XXH3_64bits_withSeed(bytes.data() + at + BlockFrame::kHeadBytes, image ? 0 : static_cast<size_t>(body), head);
  std::memcpy(bytes.data() + at + kSumAt, &sum, sizeof sum);
  return at + BlockFrame::kHeadBytes + static_cast<size_t>(body);
}

void check_frame(const BlockFrame& frame) {
  const bool image = BlockFrame::has_image(frame.kind);
  if (frame.body.size() > (image ? kMaxImage : BlockFrame::kMaxText)) std::abort();
  std::string again;
  encode_frame(frame, again);
  BlockFrameReader reader(kMaxImage);
  reader.push(again);
  const auto read = reader.next();
  if (!read || read->kind != frame.kind || read->lease != frame.lease || !(read->identity == frame.identity) ||
      !(read->key == frame.key) || read->body != frame.body || reader.held_bytes() != 0)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (const auto ticket = BlockTicket::parse(bytes)) {
    const auto again = BlockTicket::parse(ticket->text());
    if (!again || again->text() != ticket->text()) std::abort();
  }
  if (const auto range = decode_range(bytes, 100, 1000); range && range->offset + range->bytes > 1000) std::abort();

  if (data[0] & 1)
    for (size_t at = 0; at < bytes.size();) at = seal_frame(bytes, at);
  const size_t part = 1 + data[0] / 2;
  BlockFrameReader reader(kMaxImage);
  for (size_t at = 0; at < bytes.size(); at += part) {
    reader.push(std::string_view(bytes).substr(at, part));
    while (const auto frame = reader.next()) check_frame(*frame);
    if (!reader.broken() && reader.held_bytes() > BlockFrame::kHeadBytes + kMaxImage + part) std::abort();
  }
  return 0;
}
