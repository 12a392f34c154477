// StoreIndex against a plain list with the same rules: random blocks are written, found, used, read, dropped and
// evicted, and every block and count is compared after each step.
#include "kv/tiers/store_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/philox.h"

namespace millrace {
namespace {

struct IndexedBlock {
  PrefixKey key, parent;
  std::vector<TokenId> tokens;
  ChainLink link() const { return {key, parent, tokens, 0.5f}; }
};

IndexedBlock indexed_block(uint64_t id) { return {{id, id + 1}, {id + 2, id + 3}, {static_cast<TokenId>(id), 7}}; }

StoreRecord record_of(uint64_t id, uint64_t sequence) {
  const IndexedBlock b = indexed_block(id);
  return {sequence, b.key, b.parent, b.tokens, {}, 0};
}

struct Stored {
  uint64_t id = 0;
  int64_t slot = 0;
  int pins = 0;
};

TEST(StoreIndex, MatchesAPlainLruList) {
  constexpr int64_t kCapacity = 7;
  StoreIndex index(kCapacity);
  std::vector<Stored> order;        // the least recently used first
  std::map<int64_t, int> pinned;    // slots that were dropped while they were read
  std::map<int64_t, bool> written;  // slots that ever held something
  int64_t full = 0, reused = 0;
  for (uint64_t step = 0; step < 20'000; ++step) {
    const auto draw = philox4x32(3, step, 0);
    const uint64_t id = draw[0] % 20;
    const IndexedBlock b = indexed_block(id);
    const auto at = std::ranges::find(order, id, &Stored::id);
    switch (draw[1] % 6) {
      case 0:
      case 1: {
        if (at != order.end()) break;
        bool dirty = false;
        const int64_t slot = index.reserve(b.link(), dirty);
        const auto free_to_go = std::ranges::find(order, 0, &Stored::pins);
        if (static_cast<int64_t>(order.size() + pinned.size()) == kCapacity) {
          ++full;
          ASSERT_EQ(slot, free_to_go == order.end() ? -1 : free_to_go->slot);
          if (slot < 0) break;
          ASSERT_FALSE(index.known(indexed_block(free_to_go->id).key));
          order.erase(free_to_go);
        } else {
          ASSERT_GE(slot, 0);
          ASSERT_LT(slot, kCapacity);
          ASSERT_TRUE(std::ranges::none_of(order, [&](const Stored& one) { return one.slot == slot; }));
          ASSERT_FALSE(pinned.contains(slot));
        }
        ASSERT_EQ(dirty, written[slot]);
        reused += dirty;
        written[slot] = true;
        ASSERT_TRUE(index.known(b.key));
        ASSERT_EQ(index.find(b.link()), -1) << "not before it is written";
        ASSERT_EQ(index.record(slot).tokens, b.tokens);
        ASSERT_EQ(index.record(slot).importance, 0.5f);
        if (draw[2] % 8 == 0) {
          index.drop(slot);  // the write failed
          break;
        }
        index.publish(slot, {step, 1});
        ASSERT_EQ(index.record(slot).sums, (std::vector<uint64_t>{step, 1}));
        order.push_back({id, slot, 0});
        break;
      }
      case 2:
        if (at == order.end()) break;
        index.use(at->slot);
        std::rotate(at, at + 1, order.end());
        break;
      case 3:
        if (at == order.end()) break;
        index.pin(at->slot);
        ++at->pins;
        break;
      case 4:
        if (draw[2] % 4 == 0 && !pinned.empty()) {
          index.unpin(pinned.begin()->first);
          if (--pinned.begin()->second == 0) pinned.erase(pinned.begin());
        } else if (at != order.end() && at->pins > 0) {
          index.unpin(at->slot);
          --at->pins;
        }
        break;
      default:
        if (at == order.end() || draw[2] % 5 != 0) break;
        index.drop(at->slot);
        if (at->pins > 0) pinned[at->slot] = at->pins;
        index.drop(at->slot);  // a second call changes nothing
        order.erase(at);
    }
    ASSERT_EQ(index.size(), static_cast<int64_t>(order.size()));
    for (uint64_t other = 0; other < 20; ++other) {
      const auto found = std::ranges::find(order, other, &Stored::id);
      ASSERT_EQ(index.find(indexed_block(other).link()), found == order.end() ? -1 : found->slot) << step;
      ASSERT_EQ(index.known(indexed_block(other).key), found != order.end());
    }
  }
  EXPECT_GT(full, 500);
  EXPECT_GT(reused, 500);
}

// A matching key is not enough: the parent block and the tokens are compared.
TEST(StoreIndex, HitComparesParentAndTokens) {
  StoreIndex index(2);
  bool dirty = false;
  const IndexedBlock b = indexed_block(1);
  const int64_t slot = index.reserve(b.link(), dirty);
  index.publish(slot, {});
  IndexedBlock other = b;
  other.tokens.back() = 8;
  EXPECT_EQ(index.find(other.link()), -1);
  other = b;
  other.parent.low ^= 1;
  EXPECT_EQ(index.find(other.link()), -1);
  EXPECT_TRUE(index.known(other.key));
  EXPECT_EQ(index.find(b.link()), slot);
}

TEST(StoreIndex, NewerRecordOfAnExistingFileWins) {
  for (bool later_first : {false, true}) {
    StoreIndex index(6);
    index.forget_all();
    index.restore(1, record_of(7, later_first ? 30 : 10));
    index.restore(4, record_of(7, later_first ? 10 : 30));
    index.restore(2, record_of(8, 20));
    index.restore(0, record_of(9, 40));
    index.restored();
    EXPECT_EQ(index.size(), 3);
    EXPECT_EQ(index.find(indexed_block(7).link()), later_first ? 1 : 4);
    EXPECT_EQ(index.find(indexed_block(8).link()), 2);
    bool dirty = false;
    std::vector<int64_t> slots;
    for (uint64_t id : {11, 12, 13}) {
      dirty = false;
      slots.push_back(index.reserve(indexed_block(id).link(), dirty));
      EXPECT_EQ(dirty, slots.back() != 5) << "slot 5 is beyond the last record: never written, unlike the others";
      index.publish(slots.back(), {});
    }
    std::ranges::sort(slots);
    EXPECT_EQ(slots, later_first ? (std::vector<int64_t>{3, 4, 5}) : (std::vector<int64_t>{1, 3, 5}));
    EXPECT_GT(index.record(slots[0]).sequence, 40u) << "continues after the last one";
    // Then the least recently used by number: 8, 7, 9, if they were written.
    EXPECT_EQ(index.reserve(indexed_block(14).link(), dirty), 2);
    EXPECT_EQ(index.reserve(indexed_block(15).link(), dirty), later_first ? 1 : 4);
    EXPECT_EQ(index.reserve(indexed_block(16).link(), dirty), 0);
    EXPECT_EQ(index.find(indexed_block(9).link()), -1);
  }
}

// The file's numbers are input: the largest must not wrap the numbers that follow.
TEST(StoreIndex, SequenceNumbersOfAForgedFileDoNotWrap) {
  StoreIndex index(2);
  index.forget_all();
  index.restore(0, record_of(7, std::numeric_limits<uint64_t>::max()));
  index.restored();
  bool dirty = false;
  const int64_t slot = index.reserve(indexed_block(8).link(), dirty);
  index.publish(slot, {});
  EXPECT_GT(index.record(slot).sequence, uint64_t{1} << 62);
}

}  // namespace
}  // namespace millrace
