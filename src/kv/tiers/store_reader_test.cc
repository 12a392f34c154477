// How the prefix store's reader combines and orders its requests, and what remains of a damaged block.
#include "kv/tiers/store_reader_test.h"

#include "kv/tiers/block_io.h"

namespace millrace {
namespace {

using Flags = std::vector<char>;
const auto kArrival = StoreOrder::arrival, kImportance = StoreOrder::importance;

// Layers of 64, 64, 4, 200, 4, 120, 4 and 4 KiB: adjacent ones are read together up to 128 KiB. A request with a
// damaged part leaves zeros in all its layers of that block, which shows what the request covered.
TEST_F(ReaderTest, SmallAdjacentLayersAreReadTogether) {
  for (const bool uring : {false, true}) {
    open({4096, 4096, 256, 12800, 256, 7680, 256, 256}, 9, kArrival, uring);
    std::vector<StoreLoad::Block> blocks;
    for (int64_t slot = 0; slot < 9; ++slot) blocks.push_back(written(slot, static_cast<BlockId>(8 - slot)));
    for (int64_t slot = 0; slot < 8; ++slot) damage(slot, slot);
    const auto done = load(blocks);
    const char* const expected[] = {"00wwwwww", "00wwwwww", "ww0wwwww", "www0wwww", "wwww000w",
                                    "wwww000w", "wwww000w", "wwwwwww0", "wwwwwwww"};
    for (int64_t slot = 0; slot < 9; ++slot)
      EXPECT_EQ(look(static_cast<BlockId>(8 - slot), slot), expected[slot]) << slot;
    EXPECT_EQ(look(9, 0), "--------");
    EXPECT_EQ(done->bad, (Flags{1, 1, 1, 1, 1, 1, 1, 1, 0}));
    EXPECT_EQ(done->layers, 8);
    EXPECT_TRUE(done->done);
  }
}

// A chunk has 64 slots of these layers. The file ends within a block's second layer, so the rest of that request is
// lost too.
TEST_F(ReaderTest, AdjacentSlotsOfAChunkAreReadByOneRequest) {
  struct Case {
    std::vector<int64_t> slots;
    Flags bad;
  };
  for (const bool uring : {false, true}) {
    for (const Case& one : {Case{{3, 4, 5}, {1, 1, 1}},
                            {{5, 4}, {1, 1}},
                            {{3, 5}, {0, 1}},
                            {{6, 3, 4}, {1, 0, 0}},
                            {{5, 0, 4, 1}, {1, 0, 1, 0}}}) {
      open({8, 256}, 64, kImportance, uring);
      ASSERT_EQ(g().chunk_slots, 64);
      std::vector<StoreLoad::Block> blocks;
      for (int64_t slot : one.slots) blocks.push_back(written(slot, static_cast<BlockId>(slot)));
      ASSERT_EQ(::truncate(path_.c_str(), g().place(5, 1) + 4095), 0);
      const auto done = load(blocks);
      EXPECT_EQ(done->bad, one.bad);
      for (size_t i = 0; i < one.slots.size(); ++i)
        EXPECT_EQ(look(static_cast<BlockId>(one.slots[i]), one.slots[i]), one.bad[i] ? "w0" : "ww") << one.slots[i];
    }
  }
}

TEST_F(ReaderTest, AdjacentSlotsOfTwoChunksAreReadSeparately) {
  for (const bool uring : {false, true}) {
    open({8, 256}, 130, kImportance, uring);
    std::vector<StoreLoad::Block> blocks;
    for (int64_t slot : {64, 63, 127, 128, 129}) blocks.push_back(written(slot, static_cast<BlockId>(blocks.size())));
    EXPECT_EQ(load(blocks)->bad, Flags(5, 0));
    for (const auto& block : blocks) EXPECT_EQ(look(block.into, block.slot), "ww") << block.slot;
    ASSERT_EQ(::truncate(path_.c_str(), g().place(64, 0)), 0);
    EXPECT_EQ(load(blocks)->bad, (Flags{1, 0, 1, 1, 1}));
  }
}

TEST_F(ReaderTest, ChunksOfTwoSlotsAreMerged) {
  open({8192, 256}, 4, kImportance, false);
  ASSERT_EQ(g().chunk_slots, 2);
  const std::vector<StoreLoad::Block> blocks{written(0, 0), written(1, 1), written(2, 2), written(3, 3)};
  EXPECT_EQ(load(blocks)->bad, Flags(4, 0));
  damage(1, 0);
  EXPECT_EQ(load(blocks)->bad, (Flags{0, 1, 0, 0})) << "each block has its own checksums";
  ASSERT_EQ(::truncate(path_.c_str(), g().place(3, 1)), 0);
  EXPECT_EQ(load(blocks)->bad, (Flags{0, 1, 1, 1}));
}

TEST_F(ReaderTest, WithoutChunksSlotsAreReadSeparately) {
  open({256}, 4, kArrival, true);
  const std::vector<StoreLoad::Block> blocks{written(0, 0), written(1, 1), written(2, 2)};
  ASSERT_EQ(::truncate(path_.c_str(), g().place(2, 0)), 0);
  EXPECT_EQ(load(blocks)->bad, (Flags{0, 0, 1}));
}

// One request at a time, all into one block of the pool: its final contents were read last.
TEST_F(ReaderTest, MostImportantBlockIsReadFirst) {
  struct Case {
    std::vector<std::pair<int64_t, float>> blocks;  // slot, importance
    int64_t last;
  };
  const auto last_is = [&](StoreOrder order, const Case& one) {
    open({256}, 16, order, false);
    std::vector<StoreLoad::Block> blocks;
    for (const auto& [slot, importance] : one.blocks) blocks.push_back(written(slot, 0, importance));
    load(blocks);
    EXPECT_EQ(look(0, one.last), "w") << one.blocks.front().first << " " << one.last;
  };
  for (const Case& one : {Case{{{0, 1}, {2, 2}}, 0},
                          {{{0, 2}, {2, 1}}, 2},
                          {{{2, 3}, {0, 1}}, 0},
                          {{{2, 1}, {0, 1}}, 2},
                          {{{0, 1}, {1, 9}, {3, 5}}, 3},
                          {{{0, 9}, {1, 1}, {3, 5}}, 3},
                          {{{3, 5}, {0, 1}, {1, 2}}, 1},
                          {{{5, 4}, {9, 6}, {7, 3}, {11, 5}}, 7}})
    last_is(kImportance, one);
  for (const Case& one : {Case{{{0, 1}, {2, 2}}, 2}, {{{2, 1}, {0, 9}}, 0}, {{{1, 5}, {2, 1}, {0, 3}}, 0}})
    last_is(kArrival, one);
}

// Many more requests than the limit in flight.
TEST_F(ReaderTest, ManyBlocksArriveInTheirPlaces) {
  for (const StoreOrder order : {kArrival, kImportance}) {
    for (const bool uring : {false, true}) {
      open({8192, 300, 8192, 8}, 40, order, uring);
      for (int64_t from = 0; from < 4; ++from) {
        std::vector<StoreLoad::Block> blocks;
        for (int64_t i = 0; i < kPoolBlocks; ++i)
          blocks.push_back(written((i * 7 + from * 11) % 40, static_cast<BlockId>(i), static_cast<float>(i % 3)));
        const auto done = load(blocks);
        EXPECT_EQ(done->bad, Flags(10, 0));
        for (const auto& block : blocks) ASSERT_EQ(look(block.into, block.slot), "wwww") << block.slot;
      }
    }
  }
}

TEST_F(ReaderTest, EmptyLoadEnds) {
  open({256, 256}, 4, kArrival, true);
  const auto done = load({});
  EXPECT_TRUE(done->done);
  EXPECT_EQ(done->layers, 2);
  EXPECT_TRUE(done->bad.empty());
}

TEST_F(ReaderTest, ReportsItsBackend) {
  open({8}, 4, kArrival, false);
  EXPECT_EQ(reader_->io(), "pread");
  open({8}, 4, kArrival, true);
  EXPECT_EQ(reader_->io() == "io_uring", make_uring_io(0, 4) != nullptr);
}

TEST(StoreReaderMemory, Is16MiBOrTwoOfTheLargestRequests) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const auto most = [](const std::vector<int64_t>& mebibytes, StoreOrder order) {
    KvLayout layout{find_format("f16"), 4, {}};
    for (int64_t size : mebibytes) layout.layers.push_back({1, size * (kMiB / 16)});
    return StoreReader::most_bytes(*StoreGeometry::create(layout, int64_t{1} << 40, order)) / kMiB;
  };
  EXPECT_EQ(most({1}, kArrival), 16);
  EXPECT_EQ(most({8}, kArrival), 16);
  EXPECT_EQ(most({9, 1}, kArrival), 18);
  EXPECT_EQ(most({1, 9}, kArrival), 18);
  EXPECT_EQ(most({1, 9, 1, 12, 2}, kArrival), 24);
  EXPECT_EQ(most({4}, kImportance), 16);
  EXPECT_EQ(most({5}, kImportance), 20);
  EXPECT_EQ(most({1, 9, 1}, kImportance), 36);
  EXPECT_EQ(StoreReader::most_bytes(*StoreGeometry::create({find_format("f16"), 4, {{1, 8}}}, kMiB, kImportance)),
            16 * kMiB);
}

}  // namespace
}  // namespace millrace
