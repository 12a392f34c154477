// Reuse statistics and the cache model, on loads small enough to count by hand, and on published ones.
#include <gtest/gtest.h>

#include <map>

#include "shared_data.h"
#include "workload/cache_model.h"
#include "workload/generate.h"
#include "workload/trace_stats.h"

namespace millrace {
namespace {

WorkloadRequest prompt(double at, int64_t tokens, std::vector<uint64_t> hashes) {
  WorkloadRequest request;
  request.arrival_seconds = at;
  request.prompt_tokens = tokens;
  request.prefix_hashes = std::move(hashes);
  request.hash_block_tokens = 10;
  return request;
}

CacheResult cache(const std::vector<WorkloadRequest>& load, const char* policy, int64_t capacity, int64_t nodes = 1) {
  return run_cache(load, {find_prefix_evictor(policy), capacity, nodes, 16, CacheRoute::in_turn});
}

TEST(Reuse, IsCountedInBlocksAndInTokens) {
  const std::vector<WorkloadRequest> load = {prompt(0, 25, {1, 2, 3}), prompt(2, 25, {1, 2, 3}), prompt(5, 40, {1, 9}),
                                             prompt(6, 10, {8})};
  const ReuseStats r = trace_stats(load).reuse;
  EXPECT_EQ(r.block_tokens, 10);
  EXPECT_EQ(r.blocks, 9);
  EXPECT_EQ(r.distinct_blocks, 5);
  EXPECT_EQ(r.hit_blocks, 4);
  EXPECT_EQ(r.hit_tokens, 35);  // 10 + 10 + 5, then 10
  EXPECT_EQ(r.tokens, 100);
  EXPECT_EQ(r.hit_tokens_expected, 5 + 25 + 15 + 5);
  EXPECT_EQ(r.hit_tokens_at_most, 9 + 25 + 19 + 9);
  EXPECT_EQ(r.requests_with_hit, 2);
  EXPECT_EQ(r.reused_blocks, 3);
  EXPECT_EQ(r.most_uses, 3);
  EXPECT_DOUBLE_EQ(r.mean_request_blocks, (1 + 0.5) / 4);
  EXPECT_DOUBLE_EQ(r.mean_request_tokens, (1 + 0.25) / 4);
  EXPECT_EQ(r.gap_seconds.count, 4);
  EXPECT_DOUBLE_EQ(r.gap_seconds.mean, (2 * 3 + 3) / 4.0);
  EXPECT_DOUBLE_EQ(r.gap_requests.max, 1);
}

TEST(Reuse, BlockAfterAMissIsNotAHit) {
  const ReuseStats r = trace_stats(std::vector{prompt(0, 20, {1, 2}), prompt(1, 20, {7, 2})}).reuse;
  EXPECT_EQ(r.hit_blocks, 0);
}

TEST(Reuse, TokenPromptsAreCutIntoBlocks) {
  std::vector<WorkloadRequest> load(2);
  for (auto& request : load) request.tokens.assign(50, 3), request.prompt_tokens = 50;
  load[1].tokens[40] = 4;
  const ReuseStats r = trace_stats(load, 16).reuse;
  EXPECT_EQ(r.blocks, 6);
  EXPECT_EQ(r.hit_blocks, 2);
  EXPECT_EQ(r.hit_tokens, 32);
}

TEST(Cache, UnlimitedCacheMatchesTheStatistics) {
  const auto load =
      *generate_workload("requests=500,prompt=uniform:1:300,prefix_tokens=512,prefix_groups=40,prefix_skew=0.8");
  const CacheResult result = cache(load, "lru", 0);
  const ReuseStats stats = trace_stats(load).reuse;
  EXPECT_EQ(result.hit_blocks, stats.hit_blocks);
  EXPECT_EQ(result.hit_tokens, stats.hit_tokens);
  EXPECT_EQ(result.stored.stored, stats.distinct_blocks);
  EXPECT_EQ(result.stored.erased, 0);
}

TEST(Cache, PoliciesEvictDifferentBlocks) {
  // 1 is popular, then 2 .. 4 occur once each: LRU evicts 1, LFU keeps it.
  const std::vector<WorkloadRequest> passing = {prompt(0, 10, {1}), prompt(1, 10, {1}), prompt(2, 10, {2}),
                                                prompt(3, 10, {3}), prompt(4, 10, {4}), prompt(5, 10, {1})};
  EXPECT_EQ(cache(passing, "lru", 2).hit_blocks, 1);
  EXPECT_EQ(cache(passing, "lfu", 2).hit_blocks, 2);
  // A long prompt after a short one, both once: length_aware evicts the end of the long one, the others the short one.
  const std::vector<WorkloadRequest> lengths = {prompt(0, 10, {1}), prompt(1, 30, {5, 6, 7}), prompt(2, 10, {8}),
                                                prompt(3, 10, {1})};
  EXPECT_EQ(cache(lengths, "lru", 4).hit_blocks, 0);
  EXPECT_EQ(cache(lengths, "lfu", 4).hit_blocks, 0);
  EXPECT_EQ(cache(lengths, "length_aware", 4).hit_blocks, 1);
}

TEST(Cache, PromptLongerThanTheCacheKeepsItsStart) {
  const std::vector<WorkloadRequest> load = {prompt(0, 50, {1, 2, 3, 4, 5}), prompt(1, 50, {1, 2, 3, 4, 5})};
  EXPECT_EQ(cache(load, "lru", 3).hit_blocks, 3);
}

TEST(Cache, NodesShareNothing) {
  const std::vector<WorkloadRequest> load = {prompt(0, 10, {1}), prompt(1, 10, {1}), prompt(2, 10, {1}),
                                             prompt(3, 10, {1})};
  EXPECT_EQ(cache(load, "lru", 5).hit_blocks, 3);
  EXPECT_EQ(cache(load, "lru", 5, 2).hit_blocks, 2);
}

TEST(Cache, RoutingByPrefixFindsTheNodeThatHasIt) {
  // With round-robin routing each prompt goes to the node that has the other one.
  const std::vector<WorkloadRequest> load = {prompt(0, 20, {1, 2}), prompt(1, 20, {5, 6}), prompt(2, 20, {5, 6}),
                                             prompt(3, 20, {1, 2}), prompt(4, 40, {1, 2, 3, 4})};
  EXPECT_EQ(cache(load, "lru", 9, 2).hit_blocks, 2);
  const CacheResult routed = run_cache(load, {find_prefix_evictor("lru"), 9, 2, 16, CacheRoute::prefix});
  EXPECT_EQ(routed.hit_blocks, 6);
  EXPECT_DOUBLE_EQ(routed.load_ratio, 80 / 60.0);
}

// Brute-force LRU: blocks with the time of their last use; the oldest leaf is evicted.
int64_t brute_force_lru(const std::vector<WorkloadRequest>& load, size_t capacity) {
  struct Block {
    uint64_t parent;
    size_t used;
    size_t depth;
  };
  std::map<uint64_t, Block> blocks;
  int64_t hits = 0;
  for (size_t r = 0; r < load.size(); ++r) {
    uint64_t parent = 0;
    bool hit = true;
    const auto& hashes = load[r].prefix_hashes;
    for (size_t i = 0; i < hashes.size(); ++i) {
      const bool known = blocks.contains(hashes[i]);
      hit = hit && known;
      hits += hit;
      if (!known && blocks.size() >= capacity) {
        auto victim = blocks.end();
        for (auto it = blocks.begin(); it != blocks.end(); ++it) {
          if (it->first == parent) continue;
          bool leaf = true;
          for (const auto& [name, other] : blocks) leaf = leaf && other.parent != it->first;
          const auto age = [](const Block& b) { return std::pair(b.used, -static_cast<int64_t>(b.depth)); };
          if (leaf && (victim == blocks.end() || age(it->second) < age(victim->second))) victim = it;
        }
        if (victim == blocks.end()) break;
        blocks.erase(victim);
      }
      blocks[hashes[i]] = {parent, r + 1, i};
      parent = hashes[i];
    }
  }
  return hits;
}

TEST(Cache, LruMatchesBruteForce) {
  const auto load =
      *generate_workload("requests=300,seed=5,prompt=fixed:1,prefix_tokens=80,prefix_groups=30,prefix_skew=0.7");
  for (int64_t capacity : {3, 7, 20, 50, 90, 149})
    EXPECT_EQ(cache(load, "lru", capacity).hit_blocks, brute_force_lru(load, static_cast<size_t>(capacity)))
        << capacity;
}

// label(once): reads a whole published trace
TEST(Reuse, MooncakeTracesHaveTheirKnownRatios) {
  MILLRACE_NEEDS_SHARED("traces/mooncake_conversation_trace.jsonl.xz");
  const auto ratio = [](const char* file) {
    const auto load = read_trace((testing::shared_data() / "traces" / file).string());
    const ReuseStats r = trace_stats(*load).reuse;
    return std::pair(r.hit_blocks, r.blocks);
  };
  EXPECT_EQ(ratio("mooncake_conversation_trace.jsonl.xz"), std::pair(int64_t{288500 - 182790}, int64_t{288500}));
  EXPECT_EQ(ratio("mooncake_synthetic_trace.jsonl.xz"), std::pair(int64_t{121877 - 43924}, int64_t{121877}));
}

}  // namespace
}  // namespace millrace
