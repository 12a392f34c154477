// ExpertPairs and explores(): what is learned of choices that come in groups, and which layers still guess.
#include "models/weight_units/expert_pairs.h"

#include <gtest/gtest.h>

#include <array>

#include "models/weight_units/exploration.h"

namespace millrace {
namespace {

TEST(ExpertPairs, GuessesTheExpertsThatFollowedMostOften) {
  ExpertPairs pairs({4, 4});
  for (const int32_t next : {3, 1, 3}) {
    pairs.observe(0, std::array{0});
    pairs.observe(1, std::array{next});
  }
  EXPECT_EQ(pairs.guess(0, std::array{0}, 4), (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(pairs.guess(0, std::array{0}, 1), (std::vector<int32_t>{3}));
  EXPECT_TRUE(pairs.guess(0, std::array{2}, 4).empty());
  EXPECT_TRUE(pairs.guess(1, std::array{3}, 4).empty());
}

// The store takes the experts of a layer in groups: later calls have the remaining ones.
TEST(ExpertPairs, ALayerInGroupsIsOneChoice) {
  ExpertPairs pairs({4, 4});
  pairs.observe(0, std::array{0, 1, 2});
  pairs.observe(0, std::array{1, 2});
  pairs.observe(0, std::array{2});
  pairs.observe(1, std::array{3});
  for (const int32_t from : {0, 1, 2}) EXPECT_EQ(pairs.guess(0, std::array{from}, 4), (std::vector<int32_t>{3}));
  // Another pass that begins at the same layer.
  pairs.observe(0, std::array{3});
  pairs.observe(0, std::array{0, 3});
  pairs.observe(1, std::array{1});
  EXPECT_EQ(pairs.guess(0, std::array{3}, 4), (std::vector<int32_t>{1}));
  EXPECT_EQ(ExpertPairs::bytes({4, 4}), 64);
  EXPECT_EQ(ExpertPairs::bytes({0, 4, 8, 2}), 4 * (32 + 16));
}

// Layers ask in turns.
TEST(Explores, EveryLayerOfAnyModel) {
  for (uint64_t layers = 1; layers <= 128; ++layers) {
    std::vector<int> made(layers, 0);
    const uint64_t passes = 1024;
    int all = 0;
    for (uint64_t asked = 0; asked < layers * passes; ++asked) {
      made[asked % layers] += explores(asked);
      all += explores(asked);
    }
    for (const int one : made) EXPECT_GT(one, 0) << layers;
    EXPECT_NEAR(all, static_cast<double>(layers * passes) / 16, 8) << layers;
  }
  std::array<int, 4> first{};
  for (uint64_t asked = 0; asked < 4 * 64; ++asked) first[asked % 4] += explores(asked);
  for (const int one : first) EXPECT_GT(one, 0);
}

}  // namespace
}  // namespace millrace
