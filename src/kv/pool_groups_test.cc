// Groups of a pool: which layers they have, and operations on one of them.
#include <gtest/gtest.h>

#include "kv/pool.h"
#include "kv/window_groups.h"

namespace millrace {
namespace {

constexpr int64_t kGroupBlock = 4;

KvLayout alike_layers(int64_t layers, int64_t heads) {
  return {find_format("f16"), kGroupBlock,
          std::vector<KvLayer>(static_cast<size_t>(layers), KvLayer{.kv_heads = heads, .head_dim = 32})};
}

TEST(KvGroups, AreLayersOrHeadsOrAllOfThem) {
  KvLayout whole = alike_layers(2, 3), layers = whole, heads = whole;
  layers.use_layer_tables();
  ASSERT_TRUE(heads.use_per_head_tables().ok());
  EXPECT_FALSE(whole.divided());
  EXPECT_EQ(whole.tables(), 1);
  EXPECT_EQ(whole.tables_per_layer(), 1);
  EXPECT_EQ(layers.tables(), 2);
  EXPECT_EQ(layers.tables_per_layer(), 1);
  EXPECT_EQ(layers.groups[1].layers, (std::vector<int64_t>{1}));
  EXPECT_EQ(layers.groups[1].head, KvGroup::kAllHeads);
  EXPECT_EQ(heads.tables(), 6);
  EXPECT_EQ(heads.tables_per_layer(), 3);
  EXPECT_EQ(heads.groups[4].layers, (std::vector<int64_t>{4}));
  EXPECT_EQ(heads.groups[4].head, 1) << "the second head of the second layer";
  auto pool = KvPool::create(heads, 12);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->groups(), 6);
  EXPECT_EQ(pool->layer_of(0, 1), 3);
  EXPECT_EQ(pool->group_of(4), 4);
  KvLayout one = alike_layers(1, 1);
  one.use_layer_tables();
  EXPECT_TRUE(one.divided()) << "a single layer, too, has its own budget";
  EXPECT_FALSE(one.prefixes_shared());
}

TEST(KvGroups, AbsentLayersTakeNothing) {
  const KvLayout one = alike_layers(1, 2);
  KvLayout two = one;
  two.layers.push_back({});
  EXPECT_TRUE(two.layers[1].absent());
  EXPECT_TRUE(two.check().ok());
  EXPECT_EQ(two.block_bytes(), one.block_bytes());
  EXPECT_EQ(two.page_block_tokens(4096), one.page_block_tokens(4096));
  EXPECT_EQ(two.heads(), one.heads());
  two.layers[1].head_dim = 32;
  EXPECT_EQ(two.check().error().message, "KV cache: layer 1 has 0 heads of 32 values");
}

TEST(KvGroups, RowsOfAPatternAreNotEncoded) {
  KvLayout layout = alike_layers(1, 2);
  layout.layers.push_back({.kv_heads = 2, .head_dim = 32, .values_in_keys = true, .side = KvSide{.layer = 0}});
  layout.encode_with(*find_kv_codec("kivi"));
  EXPECT_EQ(layout.tile_bytes(layout.layers[1]), layout.block_tokens * layout.format->row_bytes(32));
  EXPECT_LT(layout.tile_bytes(layout.layers[0]), layout.tile_bytes(layout.layers[1]));
  EXPECT_GT(layout.state_values()[0], 0);
  EXPECT_EQ(layout.state_values()[1], 0) << "no tail";
  EXPECT_EQ(layout.heads_before(1), 0) << "the heads are those of its layer";
  EXPECT_FALSE(layout.layers[1].summarizes_blocks());
}

// The first byte of the rows of a slot tells it from all others.
void mark_slots(KvPool& pool, int64_t layer, std::span<const BlockId> table, uint8_t first) {
  for (int64_t slot = 0; slot < std::ssize(table) * kGroupBlock; ++slot)
    for (int64_t head = 0; head < pool.layout().layers[static_cast<size_t>(layer)].kv_heads; ++head)
      for (uint8_t* block : {pool.keys(layer, table[static_cast<size_t>(slot / kGroupBlock)], head),
                             pool.values(layer, table[static_cast<size_t>(slot / kGroupBlock)], head)})
        block[slot % kGroupBlock * pool.row_bytes(layer)] = static_cast<uint8_t>(first + slot);
}

std::vector<int> marks_of(KvPool& pool, int64_t layer, std::span<const BlockId> table) {
  std::vector<int> marks;
  const int64_t head = pool.layout().layers[static_cast<size_t>(layer)].kv_heads - 1;
  for (int64_t slot = 0; slot < std::ssize(table) * kGroupBlock; ++slot)
    marks.push_back(pool.values(layer, table[static_cast<size_t>(slot / kGroupBlock)],
                                head)[slot % kGroupBlock * pool.row_bytes(layer)]);
  return marks;
}

std::vector<BlockId> take_blocks(KvPool& pool, int64_t count) {
  std::vector<BlockId> table;
  for (int64_t i = 0; i < count; ++i) table.push_back(*pool.allocate());
  return table;
}

TEST(KvGroups, ASlotIsCopiedInOneGroup) {
  KvLayout layout = alike_layers(3, 2);
  layout.use_layer_tables();
  auto pool = KvPool::create(layout, 9);
  ASSERT_TRUE(pool.ok());
  std::vector<std::vector<BlockId>> tables;
  for (int64_t layer = 0; layer < 3; ++layer) tables.push_back(take_blocks(*pool, 2));
  for (int64_t layer = 0; layer < 3; ++layer)
    mark_slots(*pool, layer, tables[static_cast<size_t>(layer)], static_cast<uint8_t>(10 * layer));
  pool->copy_slot(1, tables[1], 6, 3);
  EXPECT_EQ(marks_of(*pool, 0, tables[0]), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(marks_of(*pool, 1, tables[1]), (std::vector<int>{10, 11, 12, 16, 14, 15, 16, 17}));
  EXPECT_EQ(marks_of(*pool, 2, tables[2]), (std::vector<int>{20, 21, 22, 23, 24, 25, 26, 27}));
  pool->copy_slot(2, tables[2], 5, 5);
  EXPECT_EQ(marks_of(*pool, 2, tables[2]), (std::vector<int>{20, 21, 22, 23, 24, 25, 26, 27}));
}

TEST(KvGroups, ASlotIsCopiedInAGroupOfAWindow) {
  KvLayout layout = alike_layers(2, 1);
  layout.layers[1].window = 4;
  split_windows(layout, 400, 4);
  auto pool = KvPool::create(layout, 4, {.streams = 1});
  ASSERT_TRUE(pool.ok());
  ASSERT_EQ(pool->groups(), 2);
  const auto all = take_blocks(*pool, 2), window = take_blocks(pool->group(1), 2);
  mark_slots(*pool, 0, all, 0);
  mark_slots(pool->group(1), 1, window, 50);
  pool->copy_slot(1, window, 5, 4);
  EXPECT_EQ(marks_of(*pool, 0, all), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(marks_of(pool->group(1), 1, window), (std::vector<int>{50, 51, 52, 53, 55, 55, 56, 57}));
}

}  // namespace
}  // namespace millrace
