// BlockLedger where layers have recurrent states, where every layer has a window, and what check() finds of both.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/block_ledger.h"
#include "formats/format.h"
#include "kv/window_groups.h"

namespace millrace {
namespace {

class LedgerStates : public ::testing::Test {
 protected:
  void open(const KvLayout& layout, int64_t blocks, int64_t states = 0, int64_t marks = 0) {
    auto pool = KvPool::create(layout, blocks, {.states = states, .marks = marks});
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    pool_ = std::make_unique<KvPool>(std::move(*pool));
    ledger_ = std::make_unique<BlockLedger>(*pool_, nullptr);
  }
  // One layer with keys, and one with a state of eight numbers.
  void open_recurrent(int64_t blocks, int64_t states, int64_t marks = 0) {
    open({find_format("f16"), 4, {{.kv_heads = 1, .head_dim = 32}, {.state_values = 8}}}, blocks, states, marks);
  }
  // Every layer sees four tokens, so that blocks of the only group are given back.
  void open_windows(int64_t blocks) {
    KvLayout layout{find_format("f16"), 4, {{.kv_heads = 1, .head_dim = 32, .window = 4}}};
    split_windows(layout, 400, 4);
    ASSERT_EQ(layout.window, 4);
    open(layout, blocks);
  }
  // The first layer sees all tokens, the second one four, in a group of its own.
  void open_window_group(int64_t blocks) {
    KvLayout layout{
        find_format("f16"), 4, {{.kv_heads = 1, .head_dim = 32}, {.kv_heads = 1, .head_dim = 32, .window = 4}}};
    split_windows(layout, 400, 4);
    ASSERT_EQ(layout.windows.size(), 1u);
    open(layout, blocks);
  }
  LiveStream& stream(RequestId id, int64_t computed = 0) {
    auto made = std::make_unique<LiveStream>();
    made->sequence.id = id;
    made->sequence.phase = StreamPhase::running;
    made->sequence.kv.by_layer = pool_->divided();
    if (computed > 0) {
      EXPECT_TRUE(ledger_->reserve(*made, computed));
    }
    made->sequence.computed = computed;
    lists_.add_running(std::move(made));
    return *lists_.running().back();
  }
  std::string checked() const {
    const auto result = ledger_->check(lists_.table());
    return result.ok() ? "" : result.error().message;
  }
  float& state(const LiveStream& stream) { return *pool_->states().values(1, stream.sequence.kv.state); }
  uint8_t& first_byte(const LiveStream& stream, size_t block) {
    return *pool_->keys(0, stream.sequence.kv.blocks.at(block), 0);
  }

  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<BlockLedger> ledger_;
  StreamLists lists_;
};

using BlockTable = std::vector<BlockId>;

TEST_F(LedgerStates, AStreamHoldsOneState) {
  open_recurrent(20, 2);
  LiveStream &a = stream(1, 5), &b = stream(2, 5), &c = stream(3);
  EXPECT_GE(a.sequence.kv.state, 0);
  EXPECT_NE(a.sequence.kv.state, b.sequence.kv.state);
  EXPECT_EQ(pool_->states().free(), 0);
  EXPECT_TRUE(ledger_->reserve(a, 6)) << "it has its state already";
  EXPECT_FALSE(ledger_->reserve(c, 5));
  EXPECT_TRUE(c.sequence.kv.blocks.empty());
  EXPECT_EQ(c.sequence.kv.state, -1);
  EXPECT_EQ(checked(), "");
  ledger_->release(a);
  a.sequence.computed = 0;
  EXPECT_EQ(a.sequence.kv.state, -1);
  EXPECT_EQ(pool_->states().free(), 1);
  EXPECT_TRUE(ledger_->reserve(c, 5));
  EXPECT_EQ(checked(), "");
}

// Three drafted tokens behind two own ones, in slots that hold 1, 2 and 3; the stream's own state is 4.
TEST_F(LedgerStates, TheStateOfAKeptTokenReplacesTheStreams) {
  open_recurrent(20, 4, 3);
  LiveStream& a = stream(1, 5);
  for (const int64_t row : {1, 2, 3, 4}) {
    ASSERT_EQ(ledger_->mark_states(a, 2, 3), 3);
    std::vector<StateMark>& marks = a.sequence.kv.marks;
    ASSERT_EQ(marks.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(marks[i].row, static_cast<int64_t>(i) + 1);
      *pool_->states().values(1, marks[i].slot) = static_cast<float>(i + 1);
    }
    state(a) = 4;
    EXPECT_EQ(pool_->states().free(), 0);
    EXPECT_EQ(checked(), "");
    ledger_->keep_state(a, row);
    EXPECT_EQ(state(a), static_cast<float>(row));
    EXPECT_TRUE(a.sequence.kv.marks.empty());
    EXPECT_EQ(pool_->states().free(), 3);
    EXPECT_EQ(checked(), "");
  }
}

TEST_F(LedgerStates, DraftsAreAsLongAsThereAreSlots) {
  open_recurrent(20, 5, 2);
  LiveStream& a = stream(1, 5);
  LiveStream& b = stream(2, 5);
  EXPECT_EQ(ledger_->mark_states(a, 1, 1), 1);
  EXPECT_EQ(ledger_->mark_states(b, 1, 5), 1);
  EXPECT_EQ(ledger_->mark_states(a, 1, 5), 1) << "slots of an earlier step are released first";
  EXPECT_EQ(checked(), "");
  LiveStream& c = stream(3);
  EXPECT_TRUE(ledger_->reserve(c, 1)) << "drafts leave the streams' slots";
  EXPECT_EQ(ledger_->mark_states(c, 1, 1), 0);
  ledger_->release(a);
  a.sequence.computed = 0;
  EXPECT_EQ(pool_->states().free(), 2) << "those of its draft are returned, too";
  EXPECT_TRUE(a.sequence.kv.marks.empty());
  EXPECT_EQ(ledger_->mark_states(b, 1, 0), 0);
  EXPECT_EQ(pool_->states().free(), 3);
  EXPECT_EQ(ledger_->mark_states(c, 1, 5), 2) << "more slots are free, but two are for drafts";
  EXPECT_EQ(checked(), "");
}

TEST_F(LedgerStates, RowsOfKeysNeedNoSlots) {
  open({find_format("f16"), 4, {{1, 32}}}, 20);
  LiveStream& plain = stream(1, 5);
  EXPECT_EQ(ledger_->mark_states(plain, 1, 7), 7);
  EXPECT_TRUE(plain.sequence.kv.marks.empty());
  ledger_->keep_state(plain, 0);
  EXPECT_EQ(checked(), "");
}

TEST_F(LedgerStates, AStateIsSharedWithAllItsTokens) {
  open_recurrent(20, 3);
  LiveStream& owner = stream(1, 10);
  state(owner) = 7;
  first_byte(owner, 2) = 77;
  LiveStream &fewer = stream(2), &all = stream(3);
  ledger_->share(owner.sequence, fewer, 8);
  EXPECT_EQ(fewer.sequence.computed, 0);
  EXPECT_EQ(fewer.sequence.kv.state, -1);
  EXPECT_TRUE(fewer.sequence.kv.blocks.empty());
  ledger_->share(owner.sequence, all, 10);
  EXPECT_EQ(all.sequence.computed, 10);
  EXPECT_EQ(all.sequence.kv.blocks.size(), 3u);
  EXPECT_NE(all.sequence.kv.state, owner.sequence.kv.state);
  EXPECT_EQ(state(all), 7);
  EXPECT_EQ(first_byte(all, 2), 77);
  EXPECT_EQ(checked(), "");
}

TEST_F(LedgerStates, WithoutASlotOrABlockNoStateIsShared) {
  open_recurrent(20, 1);
  LiveStream &owner = stream(1, 8), &other = stream(2);
  ledger_->share(owner.sequence, other, 8);
  EXPECT_EQ(other.sequence.computed, 0);
  EXPECT_TRUE(other.sequence.kv.blocks.empty());
  EXPECT_EQ(checked(), "");
  lists_ = {};
  open_recurrent(3, 2);
  LiveStream &full = stream(1, 10), &late = stream(2);
  ledger_->share(full.sequence, late, 10);
  EXPECT_EQ(late.sequence.computed, 0) << "the state is of ten tokens, the shared blocks of eight";
  EXPECT_EQ(checked(), "");
}

TEST_F(LedgerStates, CheckCountsTheHoldersOfStates) {
  open_recurrent(20, 3);
  LiveStream &a = stream(1, 9), &b = stream(2);
  EXPECT_EQ(checked(), "");
  const StateId slot = a.sequence.kv.state;
  b.sequence.kv.state = slot;
  EXPECT_EQ(checked(), fmt::format("recurrent states: 2 streams hold slot {}, and it is held", slot));
  b.sequence.kv.state = -1;
  a.sequence.kv.state = -1;
  EXPECT_EQ(checked(), "stream 1: 9 tokens are stored without a recurrent state");
  a.sequence.computed = 0;
  EXPECT_EQ(checked(), fmt::format("recurrent states: 0 streams hold slot {}, and it is held", slot));
  a.sequence.kv.state = slot;
  pool_->states().release(slot);
  EXPECT_EQ(checked(), fmt::format("recurrent states: 1 streams hold slot {}, and it is free", slot));
}

TEST_F(LedgerStates, ASwappedStreamNeedsNoBlocks) {
  open_recurrent(20, 3);
  LiveStream& a = stream(1, 9);
  ledger_->release_blocks(a);
  EXPECT_GE(a.sequence.kv.state, 0) << "its state stays where it is";
  EXPECT_EQ(checked(), "stream 1: 9 tokens are stored in 0 blocks");
  a.sequence.phase = StreamPhase::swapped;
  EXPECT_EQ(checked(), "");
}

// With a window of four, the token behind n stored ones sees the last three of them: (n - 3) / 4 blocks are dead.
TEST_F(LedgerStates, BlocksBehindTheWindowAreGivenBack) {
  open_windows(20);
  LiveStream& a = stream(1, 14);
  const BlockTable all = a.sequence.kv.blocks;
  ledger_->give_back(a);
  EXPECT_EQ(a.sequence.kv.dead_blocks, 2);
  EXPECT_EQ(a.sequence.kv.blocks, (BlockTable{0, 0, all[2], all[3]}));
  EXPECT_EQ(ledger_->unheld_blocks(), 18);
  EXPECT_EQ(checked(), "");
  a.sequence.computed = 15;
  ledger_->give_back(a);
  EXPECT_EQ(a.sequence.kv.dead_blocks, 3);
  EXPECT_EQ(ledger_->unheld_blocks(), 19);
  ledger_->give_back(a);
  EXPECT_EQ(ledger_->unheld_blocks(), 19) << "each of them once";
  EXPECT_EQ(checked(), "");
  ledger_->release(a);
  a.sequence.computed = 0;
  EXPECT_EQ(a.sequence.kv.dead_blocks, 0);
  EXPECT_EQ(pool_->free_blocks(), 20);
  EXPECT_EQ(checked(), "");
}

TEST_F(LedgerStates, ATableThatReturnsHasNoDeadBlocks) {
  open_windows(20);
  LiveStream& a = stream(1);
  a.sequence.kv.dead_blocks = 3;
  ASSERT_TRUE(ledger_->reserve(a, 18));
  a.sequence.computed = 18;
  ASSERT_EQ(a.sequence.kv.blocks.size(), 5u);
  EXPECT_EQ(BlockTable(a.sequence.kv.blocks.begin(), a.sequence.kv.blocks.begin() + 3), (BlockTable{0, 0, 0}));
  EXPECT_EQ(ledger_->unheld_blocks(), 18);
  EXPECT_EQ(checked(), "");
  LiveStream& b = stream(2);
  b.sequence.kv.dead_blocks = 3;
  ASSERT_TRUE(ledger_->reserve(b, 8));
  EXPECT_EQ(b.sequence.kv.blocks, (BlockTable{0, 0})) << "all of its table is dead";
  EXPECT_EQ(ledger_->unheld_blocks(), 18);
}

TEST_F(LedgerStates, WhatIsGivenBackCannotBeShared) {
  open_windows(20);
  LiveStream& owner = stream(1, 18);
  ledger_->give_back(owner);
  EXPECT_EQ(owner.sequence.kv.dead_blocks, 3);
  for (const int64_t tokens : {0, 14}) EXPECT_FALSE(ledger_->may_share(owner.sequence, tokens)) << tokens;
  for (const int64_t tokens : {15, 18}) EXPECT_TRUE(ledger_->may_share(owner.sequence, tokens)) << tokens;
  LiveStream &early = stream(2), &late = stream(3);
  ledger_->share(owner.sequence, early, 14);
  EXPECT_EQ(early.sequence.computed, 0);
  EXPECT_TRUE(early.sequence.kv.blocks.empty());
  first_byte(owner, 4) = 44;
  ledger_->share(owner.sequence, late, 18);
  EXPECT_EQ(late.sequence.computed, 18);
  EXPECT_EQ(late.sequence.kv.dead_blocks, 3);
  ASSERT_EQ(late.sequence.kv.blocks.size(), 5u);
  EXPECT_EQ(late.sequence.kv.blocks[3], owner.sequence.kv.blocks[3]);
  EXPECT_NE(late.sequence.kv.blocks[4], owner.sequence.kv.blocks[4]);
  EXPECT_EQ(ledger_->holders(owner.sequence.kv.blocks[3]), 2);
  EXPECT_EQ(first_byte(late, 4), 44);
  EXPECT_EQ(owner.sequence.kv.shared_blocks, 4);
  EXPECT_EQ(late.sequence.kv.shared_blocks, 4);
  EXPECT_EQ(ledger_->unheld_blocks(), 17);
  EXPECT_EQ(checked(), "");
}

// Without a block for the copy a stream begins again: it may need blocks that it has not shared.
TEST_F(LedgerStates, AShareThatEndsEarlyIsUndone) {
  open_windows(5);
  LiveStream &owner = stream(1, 18), &other = stream(2);
  other.sequence.kv.reserved_blocks = 2;
  ledger_->share(owner.sequence, other, 18);
  EXPECT_EQ(other.sequence.computed, 0);
  EXPECT_TRUE(other.sequence.kv.blocks.empty());
  EXPECT_EQ(other.sequence.kv.reserved_blocks, 2) << "it is still promised them";
  EXPECT_EQ(ledger_->unheld_blocks(), 0);
  ledger_->release(owner);
  owner.sequence.computed = 0;
  EXPECT_EQ(ledger_->unheld_blocks(), 5);
  EXPECT_EQ(checked(), "");
}

TEST_F(LedgerStates, TrimKeepsWhatIsStoredOrPromised) {
  open_windows(20);
  LiveStream& a = stream(1, 24);
  a.sequence.computed = 16;
  ledger_->give_back(a);
  EXPECT_EQ(a.sequence.kv.dead_blocks, 3);
  a.sequence.kv.reserved_blocks = 2;
  ledger_->trim(a);
  EXPECT_EQ(a.sequence.kv.blocks.size(), 5u) << "two blocks behind the dead ones";
  a.sequence.kv.reserved_blocks = 0;
  ledger_->trim(a);
  EXPECT_EQ(a.sequence.kv.blocks.size(), 4u) << "sixteen tokens";
  EXPECT_EQ(ledger_->unheld_blocks(), 19);
  EXPECT_EQ(checked(), "");
}

TEST_F(LedgerStates, TrimShortensEveryTable) {
  open_window_group(20);
  LiveStream& a = stream(1, 12);
  const int64_t free = pool_->group(1).free_blocks();
  a.sequence.computed = 8;
  ledger_->trim(a);
  EXPECT_EQ(a.sequence.kv.blocks.size(), 2u);
  EXPECT_EQ(a.sequence.kv.windows[0].blocks.size(), 2u);
  EXPECT_EQ(pool_->group(1).free_blocks(), free + 1);
  EXPECT_EQ(checked(), "");
  KvLayout layout{find_format("f16"), 4, {{1, 32}, {1, 32}}};
  layout.use_layer_tables();
  lists_ = {};
  open(layout, 20);
  LiveStream& b = stream(2, 12);
  EXPECT_EQ(ledger_->unheld_blocks(), 14);
  b.sequence.computed = 7;
  b.sequence.kv.reserved_blocks = 3;
  ledger_->trim(b);
  EXPECT_EQ(b.sequence.kv.blocks.size(), 2u) << "a promise is of all layers together";
  EXPECT_EQ(b.sequence.kv.windows[0].blocks.size(), 2u);
  EXPECT_EQ(ledger_->unheld_blocks(), 16);
  EXPECT_EQ(checked(), "");
}

TEST_F(LedgerStates, TablesHaveRoomForTheWholeStream) {
  open_window_group(20);
  LiveStream& a = stream(1);
  ledger_->prepare(a, 16, 40);
  EXPECT_EQ(a.sequence.kv.blocks.capacity(), 4u);
  ASSERT_EQ(a.sequence.kv.windows.size(), 1u);
  EXPECT_EQ(a.sequence.kv.windows[0].blocks.capacity(), 10u);
  a.sequence.kv.by_layer = true;
  a.sequence.kv.windows.clear();
  ledger_->prepare(a, 16, 40);
  EXPECT_EQ(a.sequence.kv.windows[0].blocks.capacity(), 4u);
}

TEST_F(LedgerStates, CheckCountsTheBlocksOfAGroup) {
  open_window_group(20);
  LiveStream& a = stream(1, 16);
  BlockTable& blocks = a.sequence.kv.windows[0].blocks;
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_EQ(checked(), "");
  const BlockTable before = blocks;
  blocks.pop_back();
  EXPECT_EQ(checked(), "stream 1: 16 tokens are stored in 3 blocks of group 1");
  a.sequence.computed = 12;
  EXPECT_EQ(checked(), "KV blocks of group 1: 4 references counted, 3 held");
  a.sequence.computed = 16;
  blocks = before;
  blocks[0] = before[1];
  EXPECT_EQ(checked(), fmt::format("KV block {} of group 1: 1 references, 2 streams hold it", before[1]));
  blocks = before;
  pool_->group(1).share(before[2]);
  EXPECT_EQ(checked(), "KV blocks of group 1: 5 references counted, 4 held");
  pool_->group(1).release(before[2]);
  LiveStream& none = stream(2);
  EXPECT_TRUE(none.sequence.kv.windows.empty());
  EXPECT_EQ(checked(), "") << "a stream without tables";
  ledger_->release(a);
  a.sequence.computed = 0;
  EXPECT_EQ(pool_->group(1).free_blocks(), pool_->group(1).total_blocks());
  EXPECT_EQ(checked(), "");
}

}  // namespace
}  // namespace millrace
