#include "kv/transfer/block_frame.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/enum_table.h"

namespace millrace {
namespace {

constexpr uint32_t kFrameMagic = 0x3146424d;  // "MBF1", frozen
constexpr uint16_t kFrameVersion = 1;

struct FrameHead {  // frozen
  uint32_t magic;
  uint16_t version, kind;
  uint64_t body, lease;
  uint64_t identity_low, identity_high, key_low, key_high;
  uint64_t sum;
};
static_assert(sizeof(FrameHead) == BlockFrame::kHeadBytes);

// `text`: the body, unless it is an image.
uint64_t frame_sum(const FrameHead& head, std::string_view text) {
  const uint64_t seed = XXH3_64bits(&head, offsetof(FrameHead, sum));
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

FrameHead head_of(const BlockFrame& frame, uint64_t body) {
  FrameHead head{kFrameMagic,
                 kFrameVersion,
                 static_cast<uint16_t>(frame.kind),
                 body,
                 frame.lease,
                 frame.identity.low,
                 frame.identity.high,
                 frame.key.low,
                 frame.key.high,
                 0};
  head.sum = frame_sum(head, BlockFrame::has_image(frame.kind) ? std::string_view() : frame.body);
  return head;
}

}  // namespace

void encode_frame(const BlockFrame& frame, std::string& out) {
  const FrameHead head = head_of(frame, frame.body.size());
  out.append(reinterpret_cast<const char*>(&head), sizeof head);
  out.append(frame.body);
}

void encode_image_head(BlockFrame::Kind kind, const StoreIdentity& identity, const PrefixKey& key, uint64_t bytes,
                       std::string& out) {
  const FrameHead head = head_of({kind, 0, identity, key, {}}, bytes);
  out.append(reinterpret_cast<const char*>(&head), sizeof head);
}

std::string encode_range(const BlockRange& range) {
  const uint64_t both[2] = {range.offset, range.bytes};
  return {reinterpret_cast<const char*>(both), sizeof both};
}

std::optional<BlockRange> decode_range(std::string_view body, uint64_t bytes, uint64_t memory) {
  uint64_t both[2];
  if (body.size() != sizeof both) return std::nullopt;
  std::memcpy(both, body.data(), sizeof both);
  if (both[1] != bytes || both[1] > memory || both[0] > memory - both[1]) return std::nullopt;
  return BlockRange{both[0], both[1]};
}

std::span<char> BlockFrameReader::room(size_t bytes) {
  if (at_ == end_) at_ = end_ = 0;
  if (bytes_.size() - end_ < bytes && at_ > 0) {
    std::memmove(bytes_.data(), bytes_.data() + at_, end_ - at_);
    end_ -= std::exchange(at_, 0);
  }
  if (bytes_.size() - end_ < bytes) bytes_.resize(std::max(end_ + bytes, bytes_.size() * 3 / 2));
  return std::span(bytes_).subspan(end_);
}

void BlockFrameReader::push(std::string_view bytes) {
  if (broken_ || bytes.empty()) return;
  std::memcpy(room(bytes.size()).data(), bytes.data(), bytes.size());
  taken(bytes.size());
}

std::optional<BlockFrame> BlockFrameReader::next() {
  if (broken_ || held_bytes() < BlockFrame::kHeadBytes) return std::nullopt;
  FrameHead head;
  std::memcpy(&head, bytes_.data() + at_, sizeof head);
  const auto known = find_enumerator<BlockFrame::Kind>(head.kind);
  const auto kind = known.value_or(BlockFrame::Kind::missing);
  const uint64_t most = BlockFrame::has_image(kind) ? max_image_ : BlockFrame::kMaxText;
  if (head.magic != kFrameMagic || head.version != kFrameVersion || !known || head.body > most) {
    broken_ = true;
    return std::nullopt;
  }
  if (held_bytes() - BlockFrame::kHeadBytes < head.body) return std::nullopt;
  const std::string_view body(bytes_.data() + at_ + BlockFrame::kHeadBytes, static_cast<size_t>(head.body));
  if (head.sum != frame_sum(head, BlockFrame::has_image(kind) ? std::string_view() : body)) {
    broken_ = true;
    return std::nullopt;
  }
  at_ += BlockFrame::kHeadBytes + body.size();
  return BlockFrame{kind, head.lease, {head.identity_low, head.identity_high}, {head.key_low, head.key_high}, body};
}

}  // namespace millrace
