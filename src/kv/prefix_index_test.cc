#include "kv/prefix_index.h"

#include <gtest/gtest.h>

#include <map>

#include "base/philox.h"

namespace millrace {
namespace {

constexpr int64_t kTokensInBlock = 2;

KvPool index_pool(int64_t blocks) {
  auto pool = KvPool::create({find_format("f16"), kTokensInBlock, {{1, 32}}}, blocks);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

// Stores a prompt as a stream that has just finished would: afterwards only the index holds its blocks.
std::vector<BlockId> store(PrefixIndex& index, KvPool& pool, const std::vector<TokenId>& tokens, uint64_t tenant = 0,
                           double keep_seconds = 0) {
  std::vector<BlockId> blocks;
  for (size_t i = 0; i < tokens.size() / kTokensInBlock; ++i) blocks.push_back(*pool.allocate());
  index.insert(tokens, blocks, tenant, keep_seconds);
  for (BlockId block : blocks) pool.release(block);
  return blocks;
}

int64_t found(PrefixIndex& index, KvPool& pool, const std::vector<TokenId>& tokens, uint64_t tenant = 0) {
  const auto blocks = index.match(tokens, tenant);
  for (BlockId block : blocks) pool.release(block);
  return static_cast<int64_t>(blocks.size());
}

// Whether the index has all full blocks of `tokens`; does not count as a use.
bool has_all(const PrefixIndex& index, const std::vector<TokenId>& tokens, uint64_t tenant = 0) {
  return index.known_blocks(tokens, tenant) == std::ssize(tokens) / kTokensInBlock;
}

TEST(PrefixIndex, TenantsShareNothingWithoutACommonSalt) {
  KvPool pool = index_pool(8);
  PrefixIndex index(pool, 1);
  store(index, pool, {1, 2, 3, 4}, 7);
  EXPECT_EQ(found(index, pool, {1, 2, 3, 4}, 8), 0);
  EXPECT_EQ(found(index, pool, {1, 2, 3, 4}), 0);
  EXPECT_EQ(found(index, pool, {1, 2, 3, 4}, 7), 2);
  store(index, pool, {1, 2}, 8);
  EXPECT_EQ(index.size(), 3);
}

TEST(PrefixIndex, RetainedBlocksAreEvictedLastButNotNever) {
  KvPool pool = index_pool(4);
  ManualClock clock;
  PrefixIndex index(pool, {.identity = 1, .evictor = nullptr, .clock = &clock});
  store(index, pool, {1, 1}, 0, 10);
  store(index, pool, {2, 2});
  store(index, pool, {3, 3}, 0, 5);
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(found(index, pool, {2, 2}), 0);
  clock.advance_ns(6'000'000'000);  // 3 can be evicted, 1 cannot
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(found(index, pool, {1, 1}), 1);
  EXPECT_EQ(index.evict(5), 1);
  EXPECT_EQ(pool.free_blocks(), 4);
}

TEST(PrefixIndex, ImportantBlocksStayLonger) {
  KvPool pool = index_pool(8);
  PrefixIndex index(pool, {.identity = 1, .evictor = find_prefix_evictor("importance"), .clock = nullptr});
  auto store_weighed = [&](const std::vector<TokenId>& tokens, std::vector<float> importance) {
    std::vector<BlockId> blocks;
    for (size_t i = 0; i < tokens.size() / kTokensInBlock; ++i) blocks.push_back(*pool.allocate());
    index.insert(tokens, blocks, 0, 0, importance);
    for (BlockId block : blocks) pool.release(block);
  };
  store_weighed({1, 1}, {3});
  store_weighed({2, 2}, {0.25f});
  store_weighed({3, 3}, {});  // not observed: an even share
  store_weighed({4, 4, 5, 5}, {0.1f, 0.5f});
  const auto gone = [&](const std::vector<TokenId>& tokens) { return !has_all(index, tokens); };
  ASSERT_EQ(index.evict(1), 1);
  EXPECT_TRUE(gone({2, 2}));
  ASSERT_EQ(index.evict(2), 2);
  EXPECT_TRUE(gone({4, 4}));  // and before it the block after it
  ASSERT_EQ(found(index, pool, {3, 3}), 1);
  ASSERT_EQ(found(index, pool, {3, 3}), 1);
  ASSERT_EQ(found(index, pool, {3, 3}), 1);  // fourth use
  ASSERT_EQ(index.evict(1), 1);
  EXPECT_TRUE(gone({1, 1}));
  store_weighed({3, 3}, {5});  // observed again, with more mass
  store_weighed({6, 6}, {4});
  ASSERT_EQ(index.evict(1), 1);
  EXPECT_TRUE(gone({6, 6}));
}

TEST(PrefixIndex, AncestorsOfAHeldBlockCanBeEvicted) {
  KvPool pool = index_pool(6);
  PrefixIndex index(pool, 1);
  store(index, pool, {1, 1});
  // The stream computed its own copy of the first block, so only its second one enters the index.
  std::vector<BlockId> own = {*pool.allocate(), *pool.allocate()};
  index.insert(std::vector<TokenId>{1, 1, 2, 2}, own);
  EXPECT_EQ(index.size(), 2);
  EXPECT_EQ(index.evictable(), 1);
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(pool.references(own[1]), 1);
  EXPECT_EQ(index.size(), 0);
}

TEST(PrefixIndex, CountsSavedTokens) {
  KvPool pool = index_pool(4);
  ManualClock clock;
  PrefixIndex index(pool, {.identity = 1, .evictor = nullptr, .clock = &clock});
  store(index, pool, {1, 1, 2, 2});
  clock.advance_ns(4'000'000'000);
  EXPECT_EQ(found(index, pool, {1, 1, 2, 2, 3}), 2);
  EXPECT_EQ(found(index, pool, {9, 9}), 0);
  clock.advance_ns(1'000'000'000);
  index.evict(1);
  const PrefixStats stats = index.stats();
  EXPECT_EQ(stats.queries, 2);
  EXPECT_EQ(stats.query_tokens, 7);
  EXPECT_EQ(stats.hit_tokens, 4);
  EXPECT_EQ(stats.blocks.stored, 2);
  EXPECT_EQ(stats.blocks.erased, 1);
  EXPECT_NEAR(stats.blocks.lifetime.mean_seconds(), 5, 1e-6);
  EXPECT_NEAR(stats.blocks.idle.mean_seconds(), 1, 1e-6);
  EXPECT_NEAR(stats.blocks.reuse_gap.mean_seconds(), 4, 1e-6);
}

TEST(AgeHistogram, QuantilesAreBucketEdges) {
  AgeHistogram ages;
  EXPECT_EQ(ages.quantile_seconds(0.5), 0);
  for (int i = 0; i < 90; ++i) ages.add(0.003);
  for (int i = 0; i < 10; ++i) ages.add(100);
  EXPECT_EQ(ages.quantile_seconds(0.5), 0.004);
  EXPECT_EQ(ages.quantile_seconds(0.95), 131.072);
  ages.add(1e300);
  EXPECT_EQ(ages.count(), 101);
}

// A brute-force index: every indexed prefix as its complete list of tokens.
struct Model {
  struct Block {
    int64_t uses = 0, last = 0;
  };
  using Prefix = std::vector<TokenId>;
  std::map<std::pair<uint64_t, Prefix>, Block> blocks;
  int64_t tick = 0;

  int64_t match(uint64_t tenant, const Prefix& tokens) {
    ++tick;
    int64_t count = 0;
    for (size_t end = kTokensInBlock; end <= tokens.size(); end += kTokensInBlock, ++count) {
      const auto it = blocks.find({tenant, Prefix(tokens.begin(), tokens.begin() + static_cast<int64_t>(end))});
      if (it == blocks.end()) break;
      ++it->second.uses;
      it->second.last = tick;
    }
    return count;
  }
  void insert(uint64_t tenant, const Prefix& tokens) {
    ++tick;
    for (size_t end = kTokensInBlock; end <= tokens.size(); end += kTokensInBlock) {
      Block& block = blocks[{tenant, Prefix(tokens.begin(), tokens.begin() + static_cast<int64_t>(end))}];
      if (block.uses == 0) block.uses = 1;
      block.last = tick;
    }
  }
  bool leaf(const std::pair<uint64_t, Prefix>& key) const {
    for (const auto& [other, block] : blocks)
      if (other.first == key.first && other.second.size() == key.second.size() + kTokensInBlock &&
          std::equal(key.second.begin(), key.second.end(), other.second.begin()))
        return false;
    return true;
  }
  // The least rank among the leaves, and how many have it: ties may be broken either way.
  EvictRank least(const PrefixEvictor& evictor) const {
    EvictRank best{INT64_MAX, INT64_MAX, INT64_MAX};
    for (const auto& [key, block] : blocks)
      if (leaf(key)) best = std::min(best, rank(evictor, key.second, block));
    return best;
  }
  static EvictRank rank(const PrefixEvictor& evictor, const Prefix& prefix, const Block& block) {
    PrefixUse use;
    use.depth = static_cast<int64_t>(prefix.size()) / kTokensInBlock - 1;
    use.uses = block.uses;
    use.last_use = block.last;
    return evictor.rank(use);
  }
};

class PrefixIndexRandom : public ::testing::TestWithParam<const PrefixEvictor*> {};

// Few different tokens and lengths, so that prompts share, fork and collide all the time.
TEST_P(PrefixIndexRandom, MatchesBruteForce) {
  const PrefixEvictor& evictor = *GetParam();
  KvPool pool = index_pool(40);
  PrefixIndex index(pool, {.identity = 3, .evictor = &evictor, .clock = nullptr});
  Model model;
  uint64_t draw = 0;
  const auto random = [&](uint64_t below) { return philox4x32(11, draw++, 0)[0] % below; };
  for (int step = 0; step < 4000; ++step) {
    const uint64_t tenant = random(2);
    std::vector<TokenId> tokens(random(12));
    for (TokenId& token : tokens) token = static_cast<TokenId>(random(2));
    if (random(3) == 0) {
      ASSERT_EQ(found(index, pool, tokens, tenant), model.match(tenant, tokens)) << "step " << step;
    } else {
      while (pool.free_blocks() < 6) {
        // The evicted block, the one that the index no longer finds, must be one of the model's leaves of least rank.
        const EvictRank least = model.least(evictor);
        const int64_t before = index.size();
        ASSERT_EQ(index.evict(1), 1);
        ASSERT_EQ(index.size(), before - 1);
        int64_t gone = 0;
        for (auto it = model.blocks.begin(); it != model.blocks.end();) {
          const bool is_least = model.leaf(it->first) && Model::rank(evictor, it->first.second, it->second) == least;
          if (is_least && !has_all(index, it->first.second, it->first.first)) {
            it = model.blocks.erase(it);
            ++gone;
          } else {
            ++it;
          }
        }
        ASSERT_EQ(gone, 1) << "step " << step;
      }
      store(index, pool, tokens, tenant);
      model.insert(tenant, tokens);
    }
    ASSERT_EQ(index.size(), static_cast<int64_t>(model.blocks.size()));
    ASSERT_EQ(pool.free_blocks() + index.size(), pool.total_blocks());
  }
  index.clear();
  EXPECT_EQ(pool.free_blocks(), pool.total_blocks());
}

INSTANTIATE_TEST_SUITE_P(Evictors, PrefixIndexRandom,
                         ::testing::ValuesIn(prefix_evictors().members().begin(), prefix_evictors().members().end()),
                         [](const auto& member) { return std::string(member.param->name); });

}  // namespace
}  // namespace millrace
