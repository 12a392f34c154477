#include "kv/state_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kv/pool.h"

namespace millrace {
namespace {

TEST(StatePool, FreePlusHeldEqualsSlots) {
  const std::vector<int64_t> values = {5, 0, 17};
  EXPECT_EQ(StatePool::slot_bytes(values), 64 + 128) << "whole cache lines";
  auto pool = StatePool::create(values, 3);
  ASSERT_TRUE(pool.ok());
  EXPECT_TRUE(pool->any());
  EXPECT_EQ(pool->bytes(), 3 * 192);
  const StateId a = *pool->allocate(), b = *pool->allocate(), c = *pool->allocate();
  EXPECT_EQ(std::set<StateId>({a, b, c}).size(), 3u);
  EXPECT_EQ(pool->free(), 0);
  auto none = pool->allocate();
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::resource);
  EXPECT_EQ(none.error().message, "recurrent states: no free slot");
  pool->release(b);
  EXPECT_FALSE(pool->held(b));
  EXPECT_TRUE(pool->held(a) && pool->held(c));
  EXPECT_EQ(*pool->allocate(), b);
}

TEST(StatePool, ASnapshotHasAllLayersAndNoOtherSlot) {
  const std::vector<int64_t> values = {3, 7};
  auto pool = StatePool::create(values, 3);
  ASSERT_TRUE(pool.ok());
  float mark = 1;
  for (StateId slot : {0, 1, 2})
    for (int64_t layer : {0, 1})
      for (int64_t i = 0; i < values[static_cast<size_t>(layer)]; ++i) pool->values(layer, slot)[i] = mark++;
  pool->copy(0, 2);
  mark = 1;
  for (StateId slot : {0, 1})
    for (int64_t layer : {0, 1})
      for (int64_t i = 0; i < values[static_cast<size_t>(layer)]; ++i) {
        EXPECT_EQ(pool->values(layer, slot)[i], mark);
        if (slot == 0) {
          EXPECT_EQ(pool->values(layer, 2)[i], mark);
        }
        ++mark;
      }
}

TEST(StatePool, SizesAreChecked) {
  EXPECT_FALSE(StatePool().any());
  EXPECT_FALSE(StatePool::create(std::vector<int64_t>{0, 0}, 0)->any()) << "no layer is recurrent: no slots needed";
  const std::vector<int64_t> one = {4};
  EXPECT_EQ(StatePool::create(one, 0).error().message, "recurrent states: must be between 1 and 2147483647, got 0");
  const std::vector<int64_t> huge = {int64_t{1} << 31};
  EXPECT_EQ(StatePool::create(huge, INT32_MAX).error().kind, ErrorKind::resource);
}

// Attention and recurrent layers in one model: blocks have the bytes of the first kind only, slots those of the second.
TEST(StatePool, IsBesideTheBlocks) {
  KvLayout layout{find_format("f16"), 4, {{2, 32}, {0, 0, 100}, {1, 32}}};
  EXPECT_TRUE(layout.check().ok());
  EXPECT_EQ(layout.block_bytes(), 2 * 4 * (2 + 1) * 32 * 2);
  EXPECT_EQ(layout.state_bytes(), 448);
  KvPoolOptions options;
  options.states = 2;
  auto pool = KvPool::create(layout, 5, options);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->bytes(), 5 * layout.block_bytes() + 2 * 448);
  EXPECT_EQ(pool->states().slots(), 2);
  const BlockId a = *pool->allocate(), b = *pool->allocate();
  std::fill_n(pool->keys(2, a, 0), 4 * pool->row_bytes(2), uint8_t{7});
  pool->copy(a, b);
  EXPECT_EQ(pool->keys(2, b, 0)[0], 7);
  EXPECT_TRUE(pool->check().ok());
  options.states = 0;
  EXPECT_FALSE(KvPool::create(layout, 5, options).ok());
}

// One layer with keys and a state: its blocks and its slot are as if they were two layers'.
TEST(StatePool, ALayerMayHaveKeysToo) {
  KvLayout layout{find_format("f16"), 4, {{2, 32, 100}, {1, 32}}};
  EXPECT_TRUE(layout.check().ok());
  EXPECT_TRUE(layout.recurrent());
  EXPECT_FALSE(layout.prefixes_shared());
  EXPECT_EQ(layout.block_bytes(), 2 * 4 * (2 + 1) * 32 * 2);
  EXPECT_EQ(layout.state_bytes(), 448);
  KvPoolOptions options;
  options.states = 2;
  auto pool = KvPool::create(layout, 5, options);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->bytes(), 5 * layout.block_bytes() + 2 * 448);
  const BlockId block = *pool->allocate();
  const StateId slot = *pool->states().allocate();
  std::fill_n(pool->keys(0, block, 1), 4 * pool->row_bytes(0), uint8_t{7});
  std::fill_n(pool->states().values(0, slot), 100, 3.0f);
  EXPECT_EQ(pool->keys(0, block, 1)[0], 7);
  EXPECT_EQ(pool->states().values(0, slot)[99], 3.0f);

  layout.layers[0].head_dim = 0;
  EXPECT_EQ(layout.check().error().message, "KV cache: layer 0 has 2 heads of 0 values");
  layout.layers[0] = {2, 32, (int64_t{1} << 32) + 1};
  EXPECT_EQ(layout.check().error().message, "KV cache: layer 0 has a state of 4294967297 values");
}

}  // namespace
}  // namespace millrace
