#include "kv/tiers/store_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace millrace {
namespace {

constexpr char kMagic[8] = {'M', 'I', 'L', 'L', 'K', 'V', 'S', 'T'};  // frozen

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

int64_t round_up(int64_t bytes) { return (bytes + kStorePage - 1) / kStorePage * kStorePage; }

uint64_t header_sum(std::span<const uint8_t> page) {
  std::vector<uint8_t> copy(page.begin(), page.end());
  std::memset(copy.data() + offsetof(Header, sum), 0, sizeof(uint64_t));
  return XXH3_64bits(copy.data(), copy.size());
}

bool all_zero(std::span<const uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

}  // namespace

Result<StoreOrder> find_store_order(std::string_view name) {
  if (name == "arrival") return StoreOrder::arrival;
  if (name == "importance") return StoreOrder::importance;
  return Error::user(fmt::format("KV store: unknown order '{}'; available: arrival, importance", name));
}

Result<StoreGeometry> StoreGeometry::create(const KvLayout& layout, int64_t bytes, StoreOrder order) {
  StoreGeometry g{ImageShape::of(layout)};
  g.part_at.push_back(0);
  for (const int64_t part : g.part_bytes) g.part_at.push_back(g.part_at.back() + round_up(part));
  if (order == StoreOrder::importance) {
    int64_t most = kStorePage;
    for (int64_t layer = 0; layer < g.layers(); ++layer) most = std::max(most, g.padded(layer));
    g.chunk_slots = std::clamp<int64_t>(kStoreChunkBytes / most, 2, 64);
  }
  g.slot_bytes = g.part_at.back();
  g.record_bytes = round_up(g.head_bytes());
  constexpr int64_t kMaxSlots = INT32_MAX;
  g.capacity = std::min(kMaxSlots, (bytes - kStorePage) / (g.record_bytes + g.slot_bytes));
  if (const int64_t pieces = g.state_pieces(); pieces > 0 && g.capacity < 1 + pieces) {
    return Error::user(fmt::format(
        "KV store: one block of {} tokens and a copy of the recurrent states take {} bytes, {} are allowed; "
        "give it more",
        g.block_tokens, kStorePage + (1 + pieces) * (g.record_bytes + g.slot_bytes), bytes));
  }
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

}  // namespace millrace
