// compact() against a plain copy of every kept row, on random tables and choices.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "kv/pool.h"

namespace millrace {
namespace {

using Rows = std::vector<std::vector<uint8_t>>;  // of one slot: layer, head, keys and values

class Compact : public ::testing::TestWithParam<std::tuple<const char*, int64_t>> {
 protected:
  Rows rows(KvPool& pool, std::span<const BlockId> table, int64_t slot) {
    Rows out;
    visit(pool, table, slot, [&](uint8_t* row, size_t bytes) { out.emplace_back(row, row + bytes); });
    return out;
  }
  template <typename Body>
  void visit(KvPool& pool, std::span<const BlockId> table, int64_t slot, const Body& body) {
    const int64_t block_tokens = pool.layout().block_tokens;
    const BlockId block = table[static_cast<size_t>(slot / block_tokens)];
    for (int64_t layer = 0; layer < std::ssize(pool.layout().layers); ++layer)
      for (int64_t head = 0; head < pool.layout().layers[static_cast<size_t>(layer)].kv_heads; ++head)
        for (uint8_t* first : {pool.keys(layer, block, head), pool.values(layer, block, head)})
          body(first + slot % block_tokens * pool.row_bytes(layer), static_cast<size_t>(pool.row_bytes(layer)));
  }
};

TEST_P(Compact, MovesTheKeptRowsAndNoOthers) {
  const auto& [format, block_tokens] = GetParam();
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    const int64_t blocks = 1 + static_cast<int64_t>(random() % 9), slots = blocks * block_tokens;
    auto pool = KvPool::create({find_format(format), block_tokens, {{2, 64}, {1, 32}}}, blocks + 3);
    ASSERT_TRUE(pool.ok());
    std::vector<BlockId> table(static_cast<size_t>(blocks + 3));
    for (BlockId& block : table) block = *pool->allocate();
    std::shuffle(table.begin(), table.end(), random);
    const std::vector<BlockId> others(table.begin() + blocks, table.end());
    for (int64_t slot = 0; slot < (blocks + 3) * block_tokens; ++slot)
      visit(*pool, table, slot, [&](uint8_t* row, size_t bytes) {
        for (size_t i = 0; i < bytes; ++i) row[i] = static_cast<uint8_t>(random());
      });
    table.resize(static_cast<size_t>(blocks));
    std::vector<int32_t> kept;
    const uint64_t share = random() % 11;  // none to all of them, alone and in runs
    for (int32_t slot = 0; slot < slots; ++slot)
      if (random() % 10 < share) kept.push_back(slot);
    std::vector<Rows> expected, untouched;
    for (const int32_t slot : kept) expected.push_back(rows(*pool, table, slot));
    for (int64_t slot = 0; slot < 3 * block_tokens; ++slot) untouched.push_back(rows(*pool, others, slot));
    pool->compact(table, kept);
    for (size_t i = 0; i < kept.size(); ++i)
      ASSERT_EQ(rows(*pool, table, static_cast<int64_t>(i)), expected[i]) << round << ", slot " << kept[i];
    for (int64_t slot = 0; slot < 3 * block_tokens; ++slot)
      ASSERT_EQ(rows(*pool, others, slot), untouched[static_cast<size_t>(slot)]);
    EXPECT_TRUE(pool->check().ok());
  }
}

// Heads with slots of their own: each row comes from where its head kept it. Rows beside a layer's move with its
// tokens, and those of blocks stay.
TEST_P(Compact, MovesTheRowsOfEachHead) {
  const auto& [format, block_tokens] = GetParam();
  std::mt19937_64 random(4);
  for (int round = 0; round < 30; ++round) {
    const int64_t blocks = 1 + static_cast<int64_t>(random() % 9), slots = blocks * block_tokens;
    const KvLayer hops{.kv_heads = 2, .head_dim = 64, .values_in_keys = true, .side = KvSide{.layer = 0}};
    const KvLayer summaries{.kv_heads = 1,
                            .head_dim = 32,
                            .values_in_keys = true,
                            .side = KvSide{.layer = 1, .rows = KvSide::Rows::blocks}};
    auto pool = KvPool::create({find_format(format), block_tokens, {{2, 64}, {1, 32}, hops, summaries}}, blocks);
    ASSERT_TRUE(pool.ok());
    EXPECT_EQ(pool->layout().heads_before(1), 2);
    EXPECT_EQ(pool->layout().heads_before(2), 0);
    EXPECT_EQ(pool->layout().heads_before(3), 2);
    const auto heads = static_cast<size_t>(pool->layout().heads());
    ASSERT_EQ(heads, 3u);
    std::vector<BlockId> table(static_cast<size_t>(blocks));
    for (BlockId& block : table) block = *pool->allocate();
    std::shuffle(table.begin(), table.end(), random);
    std::vector<Rows> before;
    for (int64_t slot = 0; slot < slots; ++slot) {
      visit(*pool, table, slot, [&](uint8_t* row, size_t bytes) {
        for (size_t i = 0; i < bytes; ++i) row[i] = static_cast<uint8_t>(random());
      });
      before.push_back(rows(*pool, table, slot));
    }
    const size_t budget = random() % static_cast<uint64_t>(slots + 1);
    std::vector<int32_t> kept, order(static_cast<size_t>(slots));
    std::iota(order.begin(), order.end(), 0);
    for (size_t head = 0; head < heads; ++head) {
      std::shuffle(order.begin(), order.end(), random);
      std::sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(budget));
      kept.insert(kept.end(), order.begin(), order.begin() + static_cast<ptrdiff_t>(budget));
    }
    pool->compact(table, kept, static_cast<int64_t>(heads));
    for (size_t slot = 0; slot < budget; ++slot) {
      const Rows now = rows(*pool, table, static_cast<int64_t>(slot));
      ASSERT_EQ(now.size(), 2 * (heads + 2 + 1));
      for (size_t i = 0; i < now.size(); ++i) {
        const size_t head = i / 2 % heads;  // hops have those of the first layer
        const size_t from = i / 2 < heads + 2 ? static_cast<size_t>(kept[head * budget + slot]) : slot;
        ASSERT_EQ(now[i], before[from][i]) << round << ", slot " << slot;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Compact,
                         ::testing::Combine(::testing::Values("f16", "q8_0"), ::testing::Values(1, 4, 16)),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param)) + "_" + std::to_string(std::get<1>(one.param));
                         });

// Every layer has blocks of its own, from one set of ids: compacting one layer's table changes no other row.
TEST(CompactLayer, MovesRowsOfOneTable) {
  std::mt19937_64 random(5);
  KvLayout layout{find_format("f16"), 4, {{2, 32}, {2, 32}, {2, 32}}};
  layout.use_layer_tables();
  auto pool = KvPool::create(layout, 30);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->groups(), 3);
  EXPECT_EQ(pool->group_of(2), 2);
  EXPECT_EQ(&pool->group(2), &*pool);
  EXPECT_EQ(pool->bytes(), 30 * 4 * 2 * 2 * 32 * 2);  // tokens, heads, keys and values, dims, bytes
  EXPECT_EQ(pool->layout().bytes_per_token(), 3 * 2 * 2 * 32 * 2);
  std::vector<std::vector<BlockId>> tables(3);
  for (int i = 0; i < 24; ++i) tables[random() % 3].push_back(*pool->allocate());
  EXPECT_EQ(pool->free_blocks(), 6);
  EXPECT_TRUE(pool->check().ok());
  const auto rows_of = [&](int64_t layer, int64_t slot) {
    Rows out;
    const BlockId block = tables[static_cast<size_t>(layer)][static_cast<size_t>(slot / 4)];
    for (int64_t head = 0; head < 2; ++head)
      for (uint8_t* first : {pool->keys(layer, block, head), pool->values(layer, block, head)}) {
        first += slot % 4 * pool->row_bytes(layer);
        out.emplace_back(first, first + pool->row_bytes(layer));
      }
    return out;
  };
  std::vector<std::vector<Rows>> before(3);
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (int64_t slot = 0; slot < 4 * std::ssize(tables[static_cast<size_t>(layer)]); ++slot) {
      const BlockId block = tables[static_cast<size_t>(layer)][static_cast<size_t>(slot / 4)];
      for (int64_t head = 0; head < 2; ++head)
        for (uint8_t* first : {pool->keys(layer, block, head), pool->values(layer, block, head)})
          for (int64_t i = 0; i < pool->row_bytes(layer); ++i)
            first[slot % 4 * pool->row_bytes(layer) + i] = static_cast<uint8_t>(random());
    }
  }
  for (int64_t layer = 0; layer < 3; ++layer)  // when all are written: no block is two layers'
    for (int64_t slot = 0; slot < 4 * std::ssize(tables[static_cast<size_t>(layer)]); ++slot)
      before[static_cast<size_t>(layer)].push_back(rows_of(layer, slot));
  std::vector<int32_t> kept;
  for (int32_t slot = 0; slot < 4 * std::ssize(tables[1]); slot += 1 + slot % 3) kept.push_back(slot);
  pool->compact(tables[1], kept, 1, 1);
  for (size_t i = 0; i < kept.size(); ++i)
    ASSERT_EQ(rows_of(1, static_cast<int64_t>(i)), before[1][static_cast<size_t>(kept[i])]) << i;
  for (const int64_t layer : {0, 2})
    for (size_t slot = 0; slot < before[static_cast<size_t>(layer)].size(); ++slot)
      ASSERT_EQ(rows_of(layer, static_cast<int64_t>(slot)), before[static_cast<size_t>(layer)][slot]);
}

TEST(KvPoolByLayer, NeedsLayersThatAreAlike) {
  KvLayout layout{find_format("f16"), 4, {{2, 32}, {1, 32}}};
  layout.use_layer_tables();
  EXPECT_EQ(KvPool::create(layout, 8).error().message,
            "KV cache: blocks by layer need layers with equal heads, so that a block fits each of them");
  layout.layers = {{2, 32}, {.state_values = 64}};
  const auto refused = [&] {
    const auto pool = KvPool::create(layout, 8);
    return pool.ok() ? "" : pool.error().message;
  };
  const std::string all_store = "KV cache: blocks by layer need layers that all store keys and values";
  EXPECT_EQ(refused(), all_store);
  layout.layers = {{2, 32}, {2, 32}};
  layout.layers[1].state_values = 64;
  EXPECT_EQ(refused(), all_store) << "even with equal heads";
  layout.layers[1] = {2, 32};
  layout.layers[1] = {};
  EXPECT_EQ(refused(), all_store);
  layout.layers[1] = {2, 32};
  KvLayout encoded = layout;
  encoded.encode_with(*find_kv_codec("kivi"));
  EXPECT_EQ(KvPool::create(encoded, 8).error().message,
            "KV cache: blocks by layer are not of formats that encode whole blocks");
  EXPECT_FALSE(layout.prefixes_shared());
  EXPECT_TRUE(KvPool::create(layout, 8).ok());
}

}  // namespace
}  // namespace millrace
