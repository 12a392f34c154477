#include "kv/tiers/block_image.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "kv/tiers/block_runs.h"

namespace millrace {
namespace {

constexpr uint32_t kRecordMagic = 0x314b4c42;  // "BLK1", frozen

struct RecordHead {  // frozen; then tokens (int32), then sums (uint64), then zeros
  uint32_t magic;
  uint32_t tokens;
  uint32_t layers;
  float importance;  // 0 in files that predate this field
  uint64_t sequence;
  uint64_t key_low, key_high, parent_low, parent_high;
  uint64_t sum;  // XXH3-64 of the record, this field taken as 0
};
static_assert(sizeof(RecordHead) == ImageShape::kHeadBytes);

uint64_t record_sum(const StoreIdentity& identity, int64_t place, std::span<const uint8_t> bytes) {
  // The head without its sum, then the rest, chained by the seed: no copy of the record.
  const uint64_t seed = identity.low ^ (identity.high << 1) ^ static_cast<uint64_t>(place);
  const uint64_t head = XXH3_64bits_withSeed(bytes.data(), offsetof(RecordHead, sum), seed);
  return XXH3_64bits_withSeed(bytes.data() + sizeof(RecordHead), bytes.size() - sizeof(RecordHead), head);
}

constexpr float kMaxImportance = 1e6f;
constexpr int64_t kMaxPadding = 4096;  // less than this: a file's records are whole pages

// The layout's part of the identity text.
std::string describe_layout(const KvLayout& layout) {
  std::string out = fmt::format("KV {} in blocks of {} tokens, {} layers:", layout.format_name(), layout.block_tokens,
                                layout.layers.size());
  for (size_t i = 0; i < layout.layers.size();) {
    size_t same = i;
    while (same < layout.layers.size() && layout.layers[same].kv_heads == layout.layers[i].kv_heads &&
           layout.layers[same].head_dim == layout.layers[i].head_dim &&
           layout.layers[same].values_in_keys == layout.layers[i].values_in_keys)
      ++same;
    out += fmt::format(" {} of {}x{}{}", same - i, layout.layers[i].kv_heads, layout.layers[i].head_dim,
                       layout.layers[i].values_in_keys ? " with values in keys" : "");
    i = same;
  }
  if (layout.recurrent()) {
    const std::vector<int64_t> values = layout.state_values();
    out += fmt::format(", states {:016x}", XXH3_64bits(values.data(), values.size() * sizeof(int64_t)));
  }
  return out + "\n";
}

// Calls use(layer, part) for every part of the image.
template <typename Bytes, typename Use>
void each_part(const ImageShape& shape, Bytes image, Use&& use) {
  auto at = static_cast<size_t>(shape.head_bytes());
  for (int64_t layer = 0; layer < shape.layers(); ++layer) {
    const auto bytes = static_cast<size_t>(shape.part_bytes[static_cast<size_t>(layer)]);
    use(layer, image.subspan(at, bytes));
    at += bytes;
  }
}

}  // namespace

StoreIdentity store_identity(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.low64, hash.high64};
}

std::string identity_text(const KvLayout& layout, std::string_view model) {
  const std::string text = describe_layout(layout) + std::string(model);
  return text.size() <= 2048 ? text : text.substr(0, 1024) + fmt::format("\n... {:016x}\n", store_identity(text).low);
}

ImageShape ImageShape::of(const KvLayout& layout) {
  ImageShape shape;
  shape.block_tokens = layout.block_tokens;
  for (const KvLayer& layer : layout.layers) shape.part_bytes.push_back(layout.block_bytes(layer));
  if (!layout.recurrent()) return shape;
  shape.state_bytes = layout.state_bytes();
  shape.empty_blocks = shape.parts_bytes() == 0;
  if (shape.empty_blocks) shape.part_bytes.front() = kStatePieceBytes;
  return shape;
}

namespace {

// The bytes of a state that are in one part of a piece. Fewer than the part has at the end of the state.
std::span<uint8_t> state_part(KvPool& pool, const ImagePlace& place, const ImageShape& shape, int64_t layer) {
  const auto parts = std::span(shape.part_bytes);
  const int64_t before = std::accumulate(parts.begin(), parts.begin() + layer, int64_t{0});
  const int64_t first = std::min(place.piece * shape.parts_bytes() + before, shape.state_bytes);
  const int64_t bytes = std::min(parts[static_cast<size_t>(layer)], shape.state_bytes - first);
  return {reinterpret_cast<uint8_t*>(pool.states().values(0, place.state)) + first, static_cast<size_t>(bytes)};
}

}  // namespace

void copy_part_out(KvPool& pool, const ImagePlace& from, const ImageShape& shape, int64_t layer, uint8_t* part) {
  if (from.block >= 0 && !shape.empty_blocks) return copy_out(pool, layer, from.block, part);
  std::memset(part, 0, static_cast<size_t>(shape.part_bytes[static_cast<size_t>(layer)]));
  if (from.block < 0) std::ranges::copy(state_part(pool, from, shape, layer), part);
}

void copy_part_in(KvPool& pool, const ImagePlace& to, const ImageShape& shape, int64_t layer, const uint8_t* part) {
  if (to.block >= 0) return copy_in(pool, layer, to.block, part);  // nothing where blocks have no bytes
  const std::span<uint8_t> values = state_part(pool, to, shape, layer);
  std::copy_n(part, values.size(), values.begin());
}

uint64_t part_sum(const PrefixKey& key, int64_t layer, std::span<const uint8_t> part) {
  return XXH3_64bits_withSeed(part.data(), part.size(), key.low ^ (key.high << 1) ^ static_cast<uint64_t>(layer));
}

void encode_record(const ImageShape& shape, const StoreIdentity& identity, int64_t place, const StoreRecord& record,
                   std::span<uint8_t> out) {
  std::ranges::fill(out, uint8_t{0});
  RecordHead head{};
  head.magic = kRecordMagic;
  head.tokens = static_cast<uint32_t>(shape.block_tokens);
  head.layers = static_cast<uint32_t>(shape.layers());
  head.importance = record.importance > 0 ? std::min(record.importance, kMaxImportance) : 0;
  head.sequence = record.sequence;
  head.key_low = record.key.low, head.key_high = record.key.high;
  head.parent_low = record.parent.low, head.parent_high = record.parent.high;
  std::memcpy(out.data(), &head, sizeof head);
  uint8_t* at = out.data() + sizeof head;
  std::memcpy(at, record.tokens.data(), record.tokens.size() * sizeof(TokenId));
  at += record.tokens.size() * sizeof(TokenId);
  std::memcpy(at, record.sums.data(), record.sums.size() * sizeof(uint64_t));
  seal_record(identity, place, out);
}

void seal_record(const StoreIdentity& identity, int64_t place, std::span<uint8_t> bytes) {
  const uint64_t sum = record_sum(identity, place, bytes);
  std::memcpy(bytes.data() + offsetof(RecordHead, sum), &sum, sizeof sum);
}

RecordState decode_record(const ImageShape& shape, const StoreIdentity& identity, int64_t place,
                          std::span<const uint8_t> bytes, StoreRecord& record) {
  const int64_t padding = std::ssize(bytes) - shape.head_bytes();
  if (padding < 0 || padding >= kMaxPadding) return RecordState::bad;
  if (std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; })) return RecordState::empty;
  RecordHead head;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kRecordMagic || head.tokens != static_cast<uint64_t>(shape.block_tokens) ||
      head.layers != static_cast<uint64_t>(shape.layers()) || head.sum != record_sum(identity, place, bytes))
    return RecordState::bad;
  if (!(head.importance >= 0 && head.importance <= kMaxImportance)) return RecordState::bad;
  record.importance = head.importance;
  record.sequence = head.sequence;
  record.key = {head.key_low, head.key_high};
  record.parent = {head.parent_low, head.parent_high};
  record.tokens.resize(static_cast<size_t>(shape.block_tokens));
  record.sums.resize(static_cast<size_t>(shape.layers()));
  const uint8_t* at = bytes.data() + sizeof head;
  std::memcpy(record.tokens.data(), at, record.tokens.size() * sizeof(TokenId));
  at += record.tokens.size() * sizeof(TokenId);
  std::memcpy(record.sums.data(), at, record.sums.size() * sizeof(uint64_t));
  // The key is a function of parent and tokens: a record with any other key was not written by this program.
  return next_key(record.parent, record.tokens) == record.key ? RecordState::good : RecordState::bad;
}

void copy_parts_out(KvPool& pool, const ImagePlace& from, const ImageShape& shape, std::span<uint8_t> image) {
  each_part(shape, image,
            [&](int64_t layer, std::span<uint8_t> part) { copy_part_out(pool, from, shape, layer, part.data()); });
}

std::optional<PrefixKey> parent_in_image(std::string_view image) {
  RecordHead head;
  if (image.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, image.data(), sizeof head);
  return PrefixKey{head.parent_low, head.parent_high};
}

void copy_parts_in(KvPool& pool, const ImagePlace& to, const ImageShape& shape, std::span<const uint8_t> image) {
  each_part(shape, image,
            [&](int64_t layer, std::span<const uint8_t> part) { copy_part_in(pool, to, shape, layer, part.data()); });
}

void seal_image(const ImageShape& shape, const StoreIdentity& identity, StoreRecord& record, std::span<uint8_t> image) {
  record.sums.clear();
  each_part(shape, image,
            [&](int64_t layer, std::span<uint8_t> part) { record.sums.push_back(part_sum(record.key, layer, part)); });
  encode_record(shape, identity, kNoPlace, record, image.first(static_cast<size_t>(shape.head_bytes())));
}

bool is_image_of(const ChainLink& link, const ImageShape& shape, const StoreIdentity& identity,
                 std::span<const uint8_t> image) {
  if (std::ssize(image) != shape.image_bytes()) return false;
  StoreRecord record;
  if (decode_record(shape, identity, kNoPlace, image.first(static_cast<size_t>(shape.head_bytes())), record) !=
      RecordState::good)
    return false;
  bool same = record.key == link.key && record.parent == link.parent && std::ranges::equal(record.tokens, link.tokens);
  each_part(shape, image, [&](int64_t layer, std::span<const uint8_t> part) {
    same = same && part_sum(record.key, layer, part) == record.sums[static_cast<size_t>(layer)];
  });
  return same;
}

}  // namespace millrace
