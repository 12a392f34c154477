// Groups of a pool: which layers they have.
#include <gtest/gtest.h>

#include "kv/pool.h"

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

}  // namespace
}  // namespace millrace
