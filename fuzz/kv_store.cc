// Fuzzes the prefix store's file format: any bytes are a header that is ours, stale or foreign, and records that are
// empty, good or bad. The first byte selects: raw records; records with a valid checksum, which reaches the code behind
// the check; or bytes as the content of a record, which must round-trip, and must be rejected once a bit is flipped.
// Records may also be restored while the index is in use: no slot is then assigned before its record was read, or
// twice.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kv/tiers/store_format.h"
#include "kv/tiers/store_index.h"

namespace {

using namespace millrace;

constexpr int64_t kTokens = 4, kLayers = 2;

void write_and_read(const StoreGeometry& geometry, const StoreIdentity& identity, std::span<const uint8_t> bytes) {
  struct {
    uint64_t sequence, parent_low, parent_high, sums[kLayers];
    TokenId tokens[kTokens];
    uint16_t flip;
    float importance;
  } from{};
  std::memcpy(&from, bytes.data(), std::min(bytes.size(), sizeof from));
  StoreRecord record{from.sequence,
                     {},
                     {from.parent_low, from.parent_high},
                     {from.tokens, from.tokens + kTokens},
                     {from.sums, from.sums + kLayers},
                     from.importance};
  if (!(record.importance >= 0 && record.importance <= 1e6f)) record.importance = 0;
  record.key = next_key(record.parent, record.tokens);
  std::vector<uint8_t> written(static_cast<size_t>(geometry.record_bytes));
  encode_record(geometry, identity, 3, record, written);
  StoreRecord read;
  if (decode_record(geometry, identity, 3, written, read) != RecordState::good || read.sequence != record.sequence ||
      !(read.key == record.key) || !(read.parent == record.parent) || read.tokens != record.tokens ||
      read.sums != record.sums || read.importance != record.importance)
    std::abort();
  if (decode_record(geometry, identity, 4, written, read) == RecordState::good) std::abort();  // another slot's
  written[from.flip / 8 % written.size()] ^= static_cast<uint8_t>(1 << from.flip % 8);
  if (decode_record(geometry, identity, 3, written, read) != RecordState::bad) std::abort();
}

// Stores a block while records are still being read; `known` slots have been read so far.
void store_during_scan(StoreIndex& index, int64_t known, std::vector<char>& given) {
  const std::vector<TokenId> tokens(static_cast<size_t>(kTokens), static_cast<TokenId>(known));
  const ChainLink link{next_key({1, static_cast<uint64_t>(known)}, tokens), {1, static_cast<uint64_t>(known)}, tokens};
  const int64_t slot = index.take_slot();
  if (slot >= known || (slot >= 0 && given[static_cast<size_t>(slot)])) std::abort();
  if (slot < 0) return;
  index.assign(slot, link);
  if (index.find(link) >= 0) std::abort();  // it is still being written
  if (known % 5 == 0) {
    index.drop(slot);
    return;
  }
  index.publish(slot, {1, 2});
  if (index.find(link) != slot || !index.seen_whole(slot)) std::abort();
  if (known % 2 == 0 && (!index.check(slot) || index.find(link) >= 0)) std::abort();
  if (known % 2 == 0) given[static_cast<size_t>(slot)] = 1;  // stays in state `writing`: not free again
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::span<const uint8_t> bytes(data + 1, size - 1);
  const StoreIdentity identity = store_identity("fuzz");
  const auto geometry = StoreGeometry::create({find_format("f16"), kTokens, {{1, 16}, {2, 8}}}, int64_t{1} << 20,
                                              data[0] & 4 ? StoreOrder::importance : StoreOrder::arrival);
  if (!geometry.ok()) std::abort();
  if (data[0] & 2) write_and_read(*geometry, identity, bytes);

  std::vector<uint8_t> page(bytes.begin(),
                            bytes.begin() + static_cast<ptrdiff_t>(std::min<size_t>(bytes.size(), kStorePage)));
  decode_header(page, *geometry, identity);

  StoreIndex index(geometry->capacity);
  const bool in_use = data[0] & 8;
  if (in_use) index.forget_all();
  std::vector<char> given(static_cast<size_t>(geometry->capacity));
  const auto record_bytes = static_cast<size_t>(geometry->record_bytes);
  int64_t slot = 0, good = 0;
  for (size_t at = 0; at < bytes.size() && slot < geometry->capacity; at += record_bytes, ++slot) {
    std::vector<uint8_t> record(bytes.begin() + static_cast<ptrdiff_t>(at),
                                bytes.begin() + static_cast<ptrdiff_t>(std::min(bytes.size(), at + record_bytes)));
    record.resize(record_bytes);
    if (data[0] & 1) seal_record(identity, slot, record);
    if (in_use && slot % 3 == 2) {
      index.restored(slot);
      store_during_scan(index, slot, given);
    }
    StoreRecord read;
    if (decode_record(*geometry, identity, slot, record, read) != RecordState::good) continue;
    if (!(next_key(read.parent, read.tokens) == read.key) || static_cast<int64_t>(read.sums.size()) != kLayers)
      std::abort();
    index.restore(slot, std::move(read));
    ++good;
  }
  index.restored();
  if (index.unknown() != 0 || (!in_use && index.size() > good)) std::abort();
  return 0;
}
