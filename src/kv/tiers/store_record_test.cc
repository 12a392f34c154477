// A record of the prefix store byte by byte, and every way in which it can be invalid.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kv/tiers/store_format.h"

namespace millrace {
namespace {

constexpr StoreIdentity kIdentity{0xcad719f88c931876, 0x45469cb0582bcc1b};
constexpr int64_t kSlot = 9;

StoreGeometry record_geometry() {
  return *StoreGeometry::create({find_format("f16"), 4, {{2, 8}, {1, 16}, {1, 32}}}, 4096 + 5 * 4 * 4096);
}

StoreRecord record(float importance = 2.5f) {
  StoreRecord one;
  one.sequence = 0x0102030405060708;
  one.parent = {0x1122334455667788, 0x99aabbccddeeff00};
  one.tokens = {7, -1, 70000, 3};
  one.key = next_key(one.parent, one.tokens);
  one.sums = {11, 0xfedcba9876543210, 13};
  one.importance = importance;
  return one;
}

std::vector<uint8_t> encoded(const StoreRecord& one, int64_t slot = kSlot) {
  std::vector<uint8_t> bytes(4096, 0xaa);
  encode_record(record_geometry(), kIdentity, slot, one, bytes);
  return bytes;
}

template <typename Number>
Number number_at(std::span<const uint8_t> bytes, size_t at) {
  Number out;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

RecordState state_of(std::span<const uint8_t> bytes, int64_t slot = kSlot, const StoreIdentity& identity = kIdentity) {
  StoreRecord out;
  return decode_record(record_geometry(), identity, slot, bytes, out);
}

TEST(StoreRecord, EveryByteIsStable) {
  const auto bytes = encoded(record());
  EXPECT_EQ(std::memcmp(bytes.data(), "BLK1", 4), 0);
  EXPECT_EQ(number_at<uint32_t>(bytes, 4), 4u);
  EXPECT_EQ(number_at<uint32_t>(bytes, 8), 3u);
  EXPECT_EQ(number_at<float>(bytes, 12), 2.5f);
  EXPECT_EQ(number_at<uint64_t>(bytes, 16), 0x0102030405060708u);
  EXPECT_EQ(number_at<uint64_t>(bytes, 24), 0x6ab7565f448bb454u);
  EXPECT_EQ(number_at<uint64_t>(bytes, 32), 0xce96c8f4ddc88419u);
  EXPECT_EQ(number_at<uint64_t>(bytes, 40), 0x1122334455667788u);
  EXPECT_EQ(number_at<uint64_t>(bytes, 48), 0x99aabbccddeeff00u);
  EXPECT_EQ(number_at<uint64_t>(bytes, 56), 0xebac68afa619ee8bu);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(number_at<int32_t>(bytes, 64 + 4 * i), record().tokens[i]);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(number_at<uint64_t>(bytes, 80 + 8 * i), record().sums[i]);
  for (size_t at = 104; at < bytes.size(); ++at) ASSERT_EQ(bytes[at], 0) << at;
}

TEST(StoreRecord, RoundTrips) {
  StoreRecord back;
  ASSERT_EQ(decode_record(record_geometry(), kIdentity, kSlot, encoded(record()), back), RecordState::good);
  EXPECT_EQ(back.sequence, record().sequence);
  EXPECT_EQ(back.key, record().key);
  EXPECT_EQ(back.parent, record().parent);
  EXPECT_EQ(back.tokens, record().tokens);
  EXPECT_EQ(back.sums, record().sums);
  EXPECT_EQ(back.importance, 2.5f);
}

TEST(StoreRecord, AnyDamagedByteIsDetected) {
  auto bytes = encoded(record());
  for (size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= 32;
    ASSERT_EQ(state_of(bytes), RecordState::bad) << at;
    bytes[at] ^= 32;
  }
  EXPECT_EQ(state_of(bytes), RecordState::good);
  EXPECT_EQ(state_of(bytes, kSlot + 1), RecordState::bad) << "from another slot";
  EXPECT_EQ(state_of(bytes, kSlot, {kIdentity.low ^ 1, kIdentity.high}), RecordState::bad) << "from another model";
  EXPECT_EQ(state_of(bytes, kSlot, {kIdentity.low, kIdentity.high ^ 1}), RecordState::bad);
  EXPECT_EQ(state_of(std::span(bytes).first(4095)), RecordState::bad);
  bytes.push_back(0);
  EXPECT_EQ(state_of(bytes), RecordState::bad);
}

TEST(StoreRecord, ZerosAreAFreeSlot) {
  std::vector<uint8_t> bytes(4096);
  EXPECT_EQ(state_of(bytes), RecordState::empty);
  bytes.back() = 1;
  EXPECT_EQ(state_of(bytes), RecordState::bad);
  EXPECT_EQ(state_of(std::vector<uint8_t>(8192)), RecordState::bad);
}

// The checksum is valid, but a field has a value that no writer of this format produces.
TEST(StoreRecord, FieldsAreValidatedInAdditionToTheChecksum) {
  const auto with = [](size_t at, auto value) {
    auto bytes = encoded(record());
    std::memcpy(bytes.data() + at, &value, sizeof value);
    seal_record(kIdentity, kSlot, bytes);
    return state_of(bytes);
  };
  EXPECT_EQ(with(0, uint32_t{0x324b4c42}), RecordState::bad);
  EXPECT_EQ(with(4, uint32_t{5}), RecordState::bad);
  EXPECT_EQ(with(8, uint32_t{4}), RecordState::bad);
  EXPECT_EQ(with(12, -1.0f), RecordState::bad);
  EXPECT_EQ(with(12, std::numeric_limits<float>::quiet_NaN()), RecordState::bad);
  EXPECT_EQ(with(12, 1.0000001e6f), RecordState::bad);
  EXPECT_EQ(with(12, 1e6f), RecordState::good);
  EXPECT_EQ(with(12, 0.0f), RecordState::good);
  EXPECT_EQ(with(16, uint64_t{1}), RecordState::good);
  for (const size_t field : {24, 32, 40, 48}) EXPECT_EQ(with(field, uint64_t{1}), RecordState::bad) << field;
  for (const size_t token : {64, 68, 72, 76}) EXPECT_EQ(with(token, TokenId{1}), RecordState::bad) << token;
  EXPECT_EQ(with(96, uint64_t{1}), RecordState::good) << "the checksum of a part, compared when the part is read";
}

TEST(StoreRecord, InvalidMassIsUnknown) {
  const auto mass = [](float importance) {
    StoreRecord back;
    EXPECT_EQ(decode_record(record_geometry(), kIdentity, kSlot, encoded(record(importance)), back), RecordState::good);
    return back.importance;
  };
  EXPECT_EQ(mass(0.5f), 0.5f);
  EXPECT_EQ(mass(0), 0);
  EXPECT_EQ(mass(-3), 0);
  EXPECT_EQ(mass(std::numeric_limits<float>::quiet_NaN()), 0);
  EXPECT_EQ(mass(3e6f), 1e6f);
  EXPECT_EQ(mass(1e6f), 1e6f);
}

TEST(PartSum, CoversBytesBlockAndLayer) {
  std::vector<uint8_t> part(300);
  for (size_t i = 0; i < part.size(); ++i) part[i] = static_cast<uint8_t>(i * 7);
  const PrefixKey key = record().key;
  EXPECT_EQ(part_sum(key, 0, part), 0xfc764fcad0d552c6u);
  EXPECT_EQ(part_sum(key, 1, part), 0x7c899b84f40292c2u);
  EXPECT_EQ(part_sum(key, 2, part), 0x10446fb17908b810u);
}

}  // namespace
}  // namespace millrace
