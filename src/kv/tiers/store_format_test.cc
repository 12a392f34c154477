// The prefix store's file byte by byte: the format is frozen, so the test has literal numbers, checksums included.
#include "kv/tiers/store_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace millrace {
namespace {

constexpr StoreIdentity kModel{1, 2};

KvLayout layout(std::vector<KvLayer> layers, int64_t block_tokens = 4) {
  return {find_format("f16"), block_tokens, std::move(layers)};
}

StoreGeometry geometry(int64_t capacity = 5, StoreOrder order = StoreOrder::arrival) {
  auto made = StoreGeometry::create(layout({{2, 8}, {1, 16}, {1, 32}}), 4096 + capacity * 4 * 4096, order);
  EXPECT_TRUE(made.ok());
  return *made;
}

template <typename Number>
Number number(std::span<const uint8_t> bytes, size_t at) {
  Number out;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

TEST(StoreGeometry, SizesAreWholePages) {
  const auto g = *StoreGeometry::create(layout({{1, 256}, {1, 257}, {3, 8}}), 4096 + 7 * (4096 + 16384) + 20479);
  EXPECT_EQ(g.part_bytes, (std::vector<int64_t>{4096, 4112, 384}));
  EXPECT_EQ(g.part_at, (std::vector<int64_t>{0, 4096, 12288, 16384}));
  EXPECT_EQ(g.padded(0), 4096);
  EXPECT_EQ(g.padded(1), 8192);
  EXPECT_EQ(g.slot_bytes, 16384);
  EXPECT_EQ(g.record_bytes, 4096);
  EXPECT_EQ(g.capacity, 7) << "one byte too few for an eighth";
  EXPECT_EQ(g.layers(), 3);
  EXPECT_EQ(g.block_tokens, 4);
  EXPECT_EQ(g.record_at(0), 4096);
  EXPECT_EQ(g.record_at(3), 4 * 4096);
  EXPECT_EQ(g.slots_at(), 8 * 4096);
  EXPECT_EQ(g.file_bytes(), 8 * 4096 + 7 * 16384);
  EXPECT_EQ(g.place(2, 1), 8 * 4096 + 2 * 16384 + 4096);
  EXPECT_EQ(g.version(), 1u);
  EXPECT_EQ(g.chunk_slots, 1);
}

// 64 bytes, plus 4 per token and 8 per layer.
TEST(StoreGeometry, RecordThatFillsAPageTakesOnePage) {
  EXPECT_EQ(StoreGeometry::create(layout({{1, 1}, {1, 1}, {1, 1}, {1, 1}}, 1000), 1 << 20)->record_bytes, 4096);
  EXPECT_EQ(StoreGeometry::create(layout({{1, 1}, {1, 1}, {1, 1}, {1, 1}}, 1001), 1 << 20)->record_bytes, 8192);
  EXPECT_EQ(StoreGeometry::create(layout({{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, 1000), 1 << 20)->record_bytes, 8192);
}

TEST(StoreGeometry, ChunkHolds256KiBOfTheLargestLayer) {
  const auto slots = [](std::vector<KvLayer> layers) {
    const auto g = StoreGeometry::create(layout(std::move(layers)), int64_t{1} << 30, StoreOrder::importance);
    EXPECT_EQ(g->version(), 2u);
    return g->chunk_slots;
  };
  EXPECT_EQ(slots({{1, 8}}), 64);
  EXPECT_EQ(slots({{1, 256}}), 64);
  EXPECT_EQ(slots({{1, 257}}), 32);
  EXPECT_EQ(slots({{1, 8}, {1, 257}, {1, 8}}), 32);
  EXPECT_EQ(slots({{3, 256}, {1, 257}}), 21);
  EXPECT_EQ(slots({{1, 257}, {1, 8}, {5, 256}}), 12);
  EXPECT_EQ(slots({{32, 256}}), 2);
  EXPECT_EQ(slots({{64, 256}}), 2) << "one slot is not a chunk";
  EXPECT_EQ(slots({{200, 256}}), 2);
  const auto g = geometry(200, StoreOrder::importance);
  EXPECT_TRUE(g.same_chunk(0, 63));
  EXPECT_FALSE(g.same_chunk(63, 64));
  EXPECT_EQ(g.place(1, 0), g.slots_at() + 4096);
  EXPECT_EQ(g.place(1, 1), g.slots_at() + 65 * 4096);
  EXPECT_EQ(g.place(193, 2), g.slots_at() + 192 * 12288 + 2 * 8 * 4096 + 4096) << "the last chunk has 8 slots";
}

TEST(StoreGeometry, FitsBetweenOneBlockAndTheLargestSlotNumber) {
  EXPECT_EQ(StoreGeometry::create(layout({{1, 8}}), 3 * 4096)->capacity, 1);
  const auto refused = StoreGeometry::create(layout({{1, 8}}), 3 * 4096 - 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::user);
  EXPECT_EQ(refused.error().message,
            "KV store: one block of 4 tokens takes 12288 bytes, 12287 are allowed; give it more");
  EXPECT_FALSE(StoreGeometry::create(layout({{1, 8}}), 0).ok());
  EXPECT_EQ(StoreGeometry::create(layout({{1, 8}}), 4096 + 8192 * int64_t{INT32_MAX})->capacity, INT32_MAX);
  EXPECT_EQ(StoreGeometry::create(layout({{1, 8}}), 4096 + 8192 * (int64_t{INT32_MAX} - 1))->capacity, INT32_MAX - 1);
  EXPECT_EQ(StoreGeometry::create(layout({{1, 8}}), int64_t{1} << 62)->capacity, INT32_MAX);
}

TEST(StoreOrders, NamesAreStable) {
  EXPECT_EQ(find_store_order("arrival").value(), StoreOrder::arrival);
  EXPECT_EQ(find_store_order("importance").value(), StoreOrder::importance);
  const auto refused = find_store_order("size");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::user);
  EXPECT_EQ(refused.error().message, "KV store: unknown order 'size'; available: arrival, importance");
}

TEST(StoreHeader, EveryByteIsStable) {
  EXPECT_EQ(store_identity("a model"), (StoreIdentity{0xcad719f88c931876, 0x45469cb0582bcc1b}));
  for (const StoreOrder order : {StoreOrder::arrival, StoreOrder::importance}) {
    std::vector<uint8_t> page(4096, 0xaa);
    encode_header(geometry(5, order), "a model", page);
    EXPECT_EQ(std::memcmp(page.data(), "MILLKVST", 8), 0);
    const bool packed = order == StoreOrder::importance;
    EXPECT_EQ(number<uint32_t>(page, 8), packed ? 2u : 1u);
    EXPECT_EQ(number<uint32_t>(page, 12), 4u);
    EXPECT_EQ(number<uint32_t>(page, 16), 3u);
    EXPECT_EQ(number<uint32_t>(page, 20), 7u);
    EXPECT_EQ(number<uint64_t>(page, 24), 4096u);
    EXPECT_EQ(number<uint64_t>(page, 32), 12288u);
    EXPECT_EQ(number<uint64_t>(page, 40), 5u);
    EXPECT_EQ(number<uint64_t>(page, 48), 0xcad719f88c931876u);
    EXPECT_EQ(number<uint64_t>(page, 56), 0x45469cb0582bcc1bu);
    EXPECT_EQ(number<uint64_t>(page, 64), packed ? 0x3e885c413e4ad385u : 0x1a34b483756b7de4u);
    EXPECT_EQ(std::memcmp(page.data() + 72, "a model", 7), 0);
    for (size_t at = 79; at < page.size(); ++at) ASSERT_EQ(page[at], 0) << at;
    EXPECT_EQ(decode_header(page, geometry(5, order), store_identity("a model")), HeaderState::good);
  }
}

TEST(StoreHeader, HoldsAsMuchTextAsFits) {
  const std::string text(5000, 'x');
  std::vector<uint8_t> page(4096);
  encode_header(geometry(), text, page);
  EXPECT_EQ(number<uint32_t>(page, 20), 4024u);
  EXPECT_EQ(page.back(), 'x');
  EXPECT_EQ(decode_header(page, geometry(), store_identity(text.substr(0, 4024))), HeaderState::good);
}

TEST(StoreHeader, OtherSizeOrIdentityIsStale) {
  std::vector<uint8_t> page(4096);
  const StoreGeometry g = geometry();
  const StoreIdentity identity = store_identity("a model");
  encode_header(g, "a model", page);
  const auto with = [&](auto change) {
    StoreGeometry other = g;
    change(other);
    return decode_header(page, other, identity);
  };
  EXPECT_EQ(with([](StoreGeometry&) {}), HeaderState::good);
  EXPECT_EQ(with([](StoreGeometry& one) { one.chunk_slots = 2; }), HeaderState::stale);
  EXPECT_EQ(with([](StoreGeometry& one) { ++one.block_tokens; }), HeaderState::stale);
  EXPECT_EQ(with([](StoreGeometry& one) { one.part_bytes.push_back(1); }), HeaderState::stale);
  EXPECT_EQ(with([](StoreGeometry& one) { one.record_bytes += 4096; }), HeaderState::stale);
  EXPECT_EQ(with([](StoreGeometry& one) { one.slot_bytes += 4096; }), HeaderState::stale);
  EXPECT_EQ(with([](StoreGeometry& one) { ++one.capacity; }), HeaderState::stale);
  EXPECT_EQ(decode_header(page, g, {identity.low ^ 1, identity.high}), HeaderState::stale);
  EXPECT_EQ(decode_header(page, g, {identity.low, identity.high ^ 1}), HeaderState::stale);
  for (size_t at = 0; at < page.size(); ++at) {
    page[at] ^= 4;
    ASSERT_EQ(decode_header(page, g, identity), at < 8 ? HeaderState::foreign : HeaderState::stale) << at;
    page[at] ^= 4;
  }
}

TEST(StoreHeader, ZerosAreBlankAndOtherBytesForeign) {
  const StoreGeometry g = geometry();
  std::vector<uint8_t> page(4096);
  EXPECT_EQ(decode_header({}, g, kModel), HeaderState::blank);
  EXPECT_EQ(decode_header(page, g, kModel), HeaderState::blank);
  EXPECT_EQ(decode_header(std::span(page).first(4095), g, kModel), HeaderState::foreign);
  EXPECT_EQ(decode_header(std::span(page).first(1), g, kModel), HeaderState::foreign);
  page.back() = 1;
  EXPECT_EQ(decode_header(page, g, kModel), HeaderState::foreign);
}

}  // namespace
}  // namespace millrace
