#include "kv/tiers/store_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace millrace {
namespace {

constexpr char kMagic[8] = {'M', 'I', 'L', 'L', 'K', 'V', 'S', 'T'};  // frozen
constexpr uint32_t kRecordMagic = 0x314b4c42;                         // "BLK1", frozen

struct Header {  // frozen
  char magic[8];
  uint32_t version;
  uint32_t block_tokens;
  uint32_t layers;
  uint32_t text_bytes;
  uint64_t record_bytes, slot_bytes, capacity;
  uint64_t identity_low, identity_high;
  uint64_t sum;  // XXH3-64 of the page, this field taken as 0
};
static_assert(sizeof(Header) == 72);

struct RecordHead {  // frozen; then tokens (int32), then sums (uint64), then zeros
  uint32_t magic;
  uint32_t tokens;
  uint32_t layers;
  float importance;  // 0 in files that predate this field
  uint64_t sequence;
  uint64_t key_low, key_high, parent_low, parent_high;
  uint64_t sum;  // XXH3-64 of the record, this field taken as 0
};
static_assert(sizeof(RecordHead) == 64);

int64_t round_up(int64_t bytes) { return (bytes + kStorePage - 1) / kStorePage * kStorePage; }

uint64_t header_sum(std::span<const uint8_t> page) {
  std::vector<uint8_t> copy(page.begin(), page.end());
  std::memset(copy.data() + offsetof(Header, sum), 0, sizeof(uint64_t));
  return XXH3_64bits(copy.data(), copy.size());
}

uint64_t record_sum(const StoreIdentity& identity, int64_t slot, std::span<const uint8_t> bytes) {
  // The head without its sum, then the rest, chained by the seed: no copy of the record.
  const uint64_t seed = identity.low ^ (identity.high << 1) ^ static_cast<uint64_t>(slot);
  const uint64_t head = XXH3_64bits_withSeed(bytes.data(), offsetof(RecordHead, sum), seed);
  return XXH3_64bits_withSeed(bytes.data() + sizeof(RecordHead), bytes.size() - sizeof(RecordHead), head);
}

constexpr float kMaxImportance = 1e6f;

bool all_zero(std::span<const uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

}  // namespace

StoreIdentity store_identity(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.low64, hash.high64};
}

uint64_t part_sum(const PrefixKey& key, int64_t layer, std::span<const uint8_t> part) {
  return XXH3_64bits_withSeed(part.data(), part.size(), key.low ^ (key.high << 1) ^ static_cast<uint64_t>(layer));
}

Result<StoreOrder> find_store_order(std::string_view name) {
  if (name == "arrival") return StoreOrder::arrival;
  if (name == "importance") return StoreOrder::importance;
  return Error::user(fmt::format("KV store: unknown order '{}'; available: arrival, importance", name));
}

Result<StoreGeometry> StoreGeometry::create(const KvLayout& layout, int64_t bytes, StoreOrder order) {
  StoreGeometry g;
  g.block_tokens = layout.block_tokens;
  g.part_at.push_back(0);
  for (const KvLayer& layer : layout.layers) {
    g.part_bytes.push_back(layout.block_bytes(layer));
    g.part_at.push_back(g.part_at.back() + round_up(g.part_bytes.back()));
  }
  if (order == StoreOrder::importance) {
    int64_t most = kStorePage;
    for (int64_t layer = 0; layer < g.layers(); ++layer) most = std::max(most, g.padded(layer));
    g.chunk_slots = std::clamp<int64_t>(kStoreChunkBytes / most, 2, 64);
  }
  g.slot_bytes = g.part_at.back();
  g.record_bytes = round_up(static_cast<int64_t>(sizeof(RecordHead)) + 4 * g.block_tokens + 8 * g.layers());
  constexpr int64_t kMaxSlots = INT32_MAX;
  g.capacity = std::min(kMaxSlots, (bytes - kStorePage) / (g.record_bytes + g.slot_bytes));
  if (g.capacity < 1) {
    return Error::user(fmt::format("KV store: one block of {} tokens takes {} bytes, {} are allowed; give it more",
                                   g.block_tokens, kStorePage + g.record_bytes + g.slot_bytes, bytes));
  }
  return g;
}

void encode_header(const StoreGeometry& geometry, std::string_view identity_text, std::span<uint8_t> page) {
  std::ranges::fill(page, uint8_t{0});
  identity_text = identity_text.substr(0, page.size() - sizeof(Header));
  const StoreIdentity identity = store_identity(identity_text);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = geometry.version();
  header.block_tokens = static_cast<uint32_t>(geometry.block_tokens);
  header.layers = static_cast<uint32_t>(geometry.layers());
  header.text_bytes = static_cast<uint32_t>(identity_text.size());
  header.record_bytes = static_cast<uint64_t>(geometry.record_bytes);
  header.slot_bytes = static_cast<uint64_t>(geometry.slot_bytes);
  header.capacity = static_cast<uint64_t>(geometry.capacity);
  header.identity_low = identity.low;
  header.identity_high = identity.high;
  std::memcpy(page.data(), &header, sizeof header);
  std::memcpy(page.data() + sizeof header, identity_text.data(), identity_text.size());
  header.sum = header_sum(page);
  std::memcpy(page.data(), &header, sizeof header);
}

HeaderState decode_header(std::span<const uint8_t> page, const StoreGeometry& geometry, const StoreIdentity& identity) {
  if (page.size() < static_cast<size_t>(kStorePage)) return page.empty() ? HeaderState::blank : HeaderState::foreign;
  Header header;
  std::memcpy(&header, page.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return all_zero(page) ? HeaderState::blank : HeaderState::foreign;
  const bool same = header.version == geometry.version() && header.sum == header_sum(page) &&
                    header.identity_low == identity.low && header.identity_high == identity.high &&
                    header.block_tokens == static_cast<uint64_t>(geometry.block_tokens) &&
                    header.layers == static_cast<uint64_t>(geometry.layers()) &&
                    header.record_bytes == static_cast<uint64_t>(geometry.record_bytes) &&
                    header.slot_bytes == static_cast<uint64_t>(geometry.slot_bytes) &&
                    header.capacity == static_cast<uint64_t>(geometry.capacity);
  return same ? HeaderState::good : HeaderState::stale;
}

void encode_record(const StoreGeometry& geometry, const StoreIdentity& identity, int64_t slot,
                   const StoreRecord& record, std::span<uint8_t> out) {
  std::ranges::fill(out, uint8_t{0});
  RecordHead head{};
  head.magic = kRecordMagic;
  head.tokens = static_cast<uint32_t>(geometry.block_tokens);
  head.layers = static_cast<uint32_t>(geometry.layers());
  head.importance = record.importance > 0 ? std::min(record.importance, kMaxImportance) : 0;
  head.sequence = record.sequence;
  head.key_low = record.key.low, head.key_high = record.key.high;
  head.parent_low = record.parent.low, head.parent_high = record.parent.high;
  std::memcpy(out.data(), &head, sizeof head);
  uint8_t* at = out.data() + sizeof head;
  std::memcpy(at, record.tokens.data(), record.tokens.size() * sizeof(TokenId));
  at += record.tokens.size() * sizeof(TokenId);
  std::memcpy(at, record.sums.data(), record.sums.size() * sizeof(uint64_t));
  seal_record(identity, slot, out);
}

void seal_record(const StoreIdentity& identity, int64_t slot, std::span<uint8_t> bytes) {
  const uint64_t sum = record_sum(identity, slot, bytes);
  std::memcpy(bytes.data() + offsetof(RecordHead, sum), &sum, sizeof sum);
}

RecordState decode_record(const StoreGeometry& geometry, const StoreIdentity& identity, int64_t slot,
                          std::span<const uint8_t> bytes, StoreRecord& record) {
  if (bytes.size() != static_cast<size_t>(geometry.record_bytes)) return RecordState::bad;
  if (all_zero(bytes)) return RecordState::empty;
  RecordHead head;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kRecordMagic || head.tokens != static_cast<uint64_t>(geometry.block_tokens) ||
      head.layers != static_cast<uint64_t>(geometry.layers()) || head.sum != record_sum(identity, slot, bytes))
    return RecordState::bad;
  if (!(head.importance >= 0 && head.importance <= kMaxImportance)) return RecordState::bad;
  record.importance = head.importance;
  record.sequence = head.sequence;
  record.key = {head.key_low, head.key_high};
  record.parent = {head.parent_low, head.parent_high};
  record.tokens.resize(static_cast<size_t>(geometry.block_tokens));
  record.sums.resize(static_cast<size_t>(geometry.layers()));
  const uint8_t* at = bytes.data() + sizeof head;
  std::memcpy(record.tokens.data(), at, record.tokens.size() * sizeof(TokenId));
  at += record.tokens.size() * sizeof(TokenId);
  std::memcpy(record.sums.data(), at, record.sums.size() * sizeof(uint64_t));
  // The key is a function of parent and tokens: a record with any other key was not written by this program.
  return next_key(record.parent, record.tokens) == record.key ? RecordState::good : RecordState::bad;
}

}  // namespace millrace
