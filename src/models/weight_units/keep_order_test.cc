// Which experts leave memory first.
#include "models/weight_units/keep_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "models/weight_units/expert_pairs.h"

namespace millrace {
namespace {

// A cache of `capacity` units of the same size, as UnitStore keeps it.
class Cache {
 public:
  Cache(std::string_view name, size_t units, size_t capacity)
      : order_(make_keep_order(name, units, static_cast<int64_t>(capacity), 64)), capacity_(capacity) {}

  bool use(size_t unit) {
    const bool present = held_.contains(unit);
    order_->used(unit, present);
    if (present) return true;
    if (held_.size() == capacity_) {
      const auto least = std::ranges::min_element(held_, {}, [&](size_t one) { return order_->worth(one); });
      const size_t victim = *least;
      held_.erase(least);
      order_->evicted(victim);
    }
    held_.insert(unit);
    order_->loaded(unit);
    return false;
  }
  const std::set<size_t>& held() const { return held_; }

 private:
  std::unique_ptr<KeepOrder> order_;
  size_t capacity_;
  std::set<size_t> held_;
};

TEST(KeepOrder, EachDropsWhatItsNameSays) {
  const auto after = [](std::string_view name, const std::vector<size_t>& uses) {
    Cache cache(name, 10, 3);
    for (size_t unit : uses) cache.use(unit);
    return cache.held();
  };
  EXPECT_EQ(after("lru", {1, 1, 1, 2, 3, 4}), std::set<size_t>({2, 3, 4}));
  EXPECT_EQ(after("lfu", {1, 1, 1, 2, 3, 4}), std::set<size_t>({1, 3, 4}));
  EXPECT_EQ(after("weighed", {1, 1, 1, 2, 3, 4}), std::set<size_t>({1, 3, 4}));
  // Units used once leave before one that was used again.
  EXPECT_EQ(after("arc", {1, 1, 2, 3, 4, 5, 6}), std::set<size_t>({1, 5, 6}));
  EXPECT_EQ(make_keep_order("fifo", 3, 3, 1), nullptr);
}

// Frequencies of long ago count less: after a change of text, weighed follows and lfu does not.
TEST(KeepOrder, WeighedForgets) {
  Cache weighed("weighed", 10, 2), lfu("lfu", 10, 2);
  for (Cache* cache : {&weighed, &lfu}) {
    for (int i = 0; i < 500; ++i) cache->use(static_cast<size_t>(i % 2));
    for (int i = 0; i < 400; ++i) cache->use(static_cast<size_t>(5 + i % 2));
  }
  EXPECT_EQ(weighed.held(), std::set<size_t>({5, 6}));
  EXPECT_TRUE(lfu.held().contains(0) || lfu.held().contains(1));
}

// On uses that are skewed and mixed with scans, frequencies and ARC hit more often than LRU.
TEST(KeepOrder, SkewedUsesHitMoreThanWithLru) {
  const auto hits = [](std::string_view name) {
    Cache cache(name, 200, 20);
    std::mt19937 random(3);
    std::geometric_distribution<size_t> skewed(0.08);
    int count = 0;
    for (size_t i = 0; i < 6000; ++i) {
      count += cache.use(std::min<size_t>(99, skewed(random)));
      if (i % 2 == 0) count += cache.use(100 + i / 2 % 100);
    }
    return count;
  };
  const int lru = hits("lru");
  for (const char* name : {"weighed", "lfu", "arc"}) EXPECT_GT(hits(name), lru) << name;
}

TEST(ExpertPairs, GuessesWhatFollowed) {
  ExpertPairs pairs({4, 4, 4});
  const auto observe = [&](int64_t layer, std::vector<int32_t> chosen) { pairs.observe(layer, chosen); };
  const auto guess = [&](int64_t layer, std::vector<int32_t> chosen, size_t count) {
    return pairs.guess(layer, chosen, count);
  };
  EXPECT_EQ(guess(0, {1}, 2), std::vector<int32_t>());
  for (int i = 0; i < 3; ++i) {
    observe(0, {1});
    observe(1, {2, 3});
    observe(2, {0});
  }
  observe(0, {1});
  observe(1, {3});
  EXPECT_EQ(guess(0, {1}, 1), std::vector<int32_t>({3}));
  EXPECT_EQ(guess(0, {1}, 4), std::vector<int32_t>({3, 2}));
  EXPECT_EQ(guess(0, {0}, 4), std::vector<int32_t>());
  EXPECT_EQ(guess(1, {2}, 4), std::vector<int32_t>({0}));
  EXPECT_EQ(guess(2, {0}, 4), std::vector<int32_t>());
}

}  // namespace
}  // namespace millrace
