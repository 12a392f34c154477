// StoreIndex while the records of a file are still being scanned, and edge cases of its calls.
#include <gtest/gtest.h>

#include <algorithm>

#include "kv/tiers/store_index.h"

namespace millrace {
namespace {

struct Block {
  PrefixKey key, parent;
  std::vector<TokenId> tokens;
  ChainLink link() const { return {key, parent, tokens, 0.25f}; }
};

Block block(uint64_t id) { return {{id, 1}, {id, 2}, {static_cast<TokenId>(id), 7}}; }
StoreRecord record(uint64_t id, uint64_t sequence) {
  return {sequence, block(id).key, block(id).parent, block(id).tokens, {id}, 3};
}

StoreIndex of_a_file(int64_t capacity) {
  StoreIndex index(capacity);
  index.forget_all();
  return index;
}

int64_t find(const StoreIndex& index, uint64_t id) { return index.find(block(id).link()); }

struct Taken {
  int64_t slot = -1;
  bool dirty = false;
  bool operator==(const Taken&) const = default;
};

Taken store(StoreIndex& index, uint64_t id) {
  Taken out;
  const Block one = block(id);
  out.slot = index.reserve(one.link(), out.dirty);
  if (out.slot >= 0) index.publish(out.slot, {id});
  return out;
}

std::vector<int64_t> take_all(StoreIndex& index, int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(index.take_slot());
  std::ranges::sort(out);
  return out;
}

TEST(StoreIndexEdges, UnscannedSlotsAreNotAllocated) {
  StoreIndex index = of_a_file(3);
  EXPECT_EQ(index.unknown(), 3);
  EXPECT_EQ(index.take_slot(), -1);
  index.restored(2);
  EXPECT_EQ(index.unknown(), 1);
  index.restored(1);
  EXPECT_EQ(index.unknown(), 1) << "known blocks stay known";
  EXPECT_EQ(store(index, 1), (Taken{0, false}));
  EXPECT_EQ(store(index, 2), (Taken{1, false}));
  EXPECT_EQ(index.take_slot(), -1) << "the unscanned slot may be free: no block is evicted";
  EXPECT_EQ(find(index, 1), 0);
  index.restored();
  EXPECT_EQ(index.unknown(), 0);
  EXPECT_EQ(store(index, 3), (Taken{2, false}));
  EXPECT_EQ(store(index, 4), (Taken{0, true})) << "now the least recently used is evicted";
  EXPECT_EQ(index.capacity(), 3);
}

TEST(StoreIndexEdges, UnreadableRecordsAreSkipped) {
  StoreIndex index = of_a_file(5);
  index.restored(2);
  index.leave_out_unknown();
  EXPECT_EQ(index.capacity(), 2);
  EXPECT_EQ(index.unknown(), 0);
  EXPECT_EQ(take_all(index, 2), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(index.take_slot(), -1);
}

TEST(StoreIndexEdges, FirstOfTwoEqualRecordsWins) {
  StoreIndex index = of_a_file(3);
  index.restore(0, record(1, 10));
  index.restore(1, record(1, 10));
  index.restored();
  EXPECT_EQ(find(index, 1), 0);
  EXPECT_EQ(index.size(), 1);
  EXPECT_EQ(store(index, 2), (Taken{1, true}));
}

// A superseded record frees its slot once, whatever the order of the records.
TEST(StoreIndexEdges, SlotIsFreedOnce) {
  for (const bool in_steps : {false, true}) {
    StoreIndex index = of_a_file(3);
    index.restore(0, record(7, 10));
    if (in_steps) index.restored(1);
    index.restore(1, record(7, 30));
    index.restore(2, record(8, 20));
    index.restored();
    EXPECT_EQ(find(index, 7), 1);
    EXPECT_EQ(store(index, 1), (Taken{0, true}));
    EXPECT_EQ(store(index, 2).slot, 2) << "the least recently used";
    EXPECT_EQ(store(index, 3).slot, 1);
    EXPECT_EQ(index.size(), 3);
  }
}

TEST(StoreIndexEdges, PinnedSlotIsFreedWhenReleased) {
  StoreIndex index = of_a_file(3);
  index.restore(0, record(7, 10));
  index.restored(1);
  index.pin(0);
  index.pin(0);
  index.restore(1, record(7, 30));
  index.restored(2);
  EXPECT_EQ(index.take_slot(), -1);
  index.unpin(0);
  EXPECT_EQ(index.take_slot(), -1);
  index.unpin(0);
  EXPECT_EQ(index.take_slot(), 0);
}

// A write that failed before the scan ended: its slot is freed once.
TEST(StoreIndexEdges, DroppedSlotIsFreedOnceWhateverIsScannedLater) {
  StoreIndex index = of_a_file(4);
  index.restored(2);
  bool dirty = true;
  const Block one = block(1);
  ASSERT_EQ(index.reserve(one.link(), dirty), 0);
  EXPECT_FALSE(dirty);
  index.drop(0);
  EXPECT_FALSE(index.known(one.key));
  index.restored(4);
  EXPECT_EQ(take_all(index, 4), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(index.take_slot(), -1);
}

TEST(StoreIndexEdges, NewWritesOverrideScannedRecords) {
  StoreIndex index = of_a_file(4);
  index.restored(2);
  bool dirty = false;
  const Block one = block(1);
  ASSERT_EQ(index.reserve(one.link(), dirty), 0);
  index.restore(2, record(1, UINT64_MAX - 5));
  EXPECT_EQ(find(index, 1), -1) << "it is on its way";
  index.publish(0, {5});
  EXPECT_EQ(find(index, 1), 0);
  index.restore(3, record(1, UINT64_MAX - 4));
  EXPECT_EQ(find(index, 1), 0);
  index.restored();
  std::vector<Taken> taken{store(index, 2), store(index, 3), store(index, 4)};
  std::ranges::sort(taken, {}, &Taken::slot);
  EXPECT_EQ(taken, (std::vector<Taken>{{1, true}, {2, true}, {3, true}}))
      << "slots not known to be empty are zeroed first";
}

// However large a record's number, blocks used since the start are evicted later.
TEST(StoreIndexEdges, UseIsNewerThanAnyRecord) {
  StoreIndex index = of_a_file(3);
  index.restore(0, record(1, 1));
  index.restore(1, record(2, (uint64_t{1} << 63) + 100));
  index.restore(2, record(3, 2));
  index.restored();
  index.use(0);
  EXPECT_EQ(store(index, 4).slot, 2);
  EXPECT_EQ(store(index, 5).slot, 1);
  EXPECT_EQ(store(index, 6).slot, 0);
}

TEST(StoreIndexEdges, NumbersContinueAfterTheLargestKnown) {
  StoreIndex index = of_a_file(4);
  index.restore(0, record(1, 70));
  index.restore(1, record(2, 60));
  index.restored();
  EXPECT_EQ(index.record(store(index, 3).slot).sequence, 71u);
  index.number_above(50);
  EXPECT_EQ(index.record(store(index, 4).slot).sequence, 72u);
  index.number_above(500);
  EXPECT_EQ(index.record(store(index, 5).slot).sequence, 501u);
  StoreIndex fresh(2);
  EXPECT_EQ(fresh.record(store(fresh, 1).slot).sequence, 1u);
}

TEST(StoreIndexEdges, RecordRetainsEveryField) {
  StoreIndex index = of_a_file(2);
  index.restore(1, record(9, 70));
  index.restored();
  const StoreRecord& back = index.record(1);
  EXPECT_EQ(back.key, block(9).key);
  EXPECT_EQ(back.parent, block(9).parent);
  EXPECT_EQ(back.tokens, block(9).tokens);
  EXPECT_EQ(back.sums, (std::vector<uint64_t>{9}));
  EXPECT_EQ(back.importance, 3);
  EXPECT_FALSE(index.seen_whole(1));
  index.saw_whole(1);
  EXPECT_TRUE(index.seen_whole(1));
  index.drop(1);
  EXPECT_FALSE(index.seen_whole(1));
  EXPECT_TRUE(index.record(1).sums.empty());
  const Taken again = store(index, 9);
  EXPECT_EQ(again, (Taken{1, true}));
  EXPECT_TRUE(index.seen_whole(1)) << "it was written";
}

TEST(StoreIndexEdges, OnlyStoredUnpinnedBlocksAreVerified) {
  StoreIndex index(2);
  bool dirty = false;
  const Block one = block(1);
  const int64_t slot = index.reserve(one.link(), dirty);
  EXPECT_FALSE(index.check(slot)) << "it is being written";
  index.publish(slot, {1});
  index.pin(slot);
  EXPECT_FALSE(index.check(slot)) << "it is being read";
  EXPECT_EQ(find(index, 1), slot);
  index.unpin(slot);
  EXPECT_TRUE(index.check(slot));
  EXPECT_EQ(find(index, 1), -1);
  EXPECT_TRUE(index.known(one.key));
  EXPECT_EQ(index.size(), 0);
  EXPECT_FALSE(index.check(slot)) << "it is on its way already";
  index.use(slot);
  EXPECT_EQ(index.size(), 0) << "a block that is not stored cannot be used";
  EXPECT_EQ(index.record(slot).sums, (std::vector<uint64_t>{1}));
  index.publish(slot, {2});
  EXPECT_EQ(find(index, 1), slot);
  EXPECT_EQ(index.size(), 1);
}

TEST(StoreIndexEdges, EvictedBlocksAreNotFound) {
  StoreIndex index(1);
  EXPECT_EQ(store(index, 1), (Taken{0, false}));
  bool dirty = false;
  const Block two = block(2);
  EXPECT_EQ(index.reserve(two.link(), dirty), 0);
  EXPECT_TRUE(dirty);
  EXPECT_FALSE(index.known(block(1).key));
  EXPECT_FALSE(index.seen_whole(0)) << "not before it is written";
  EXPECT_EQ(index.record(0).importance, 0.25f);
  EXPECT_EQ(index.take_slot(), -1) << "blocks being written are not evicted";
  index.publish(0, {});
  index.pin(0);
  EXPECT_EQ(index.take_slot(), -1) << "blocks being read are not evicted";
}

}  // namespace
}  // namespace millrace
