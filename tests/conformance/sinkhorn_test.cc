// What sinkhorn adds to the scores of blocks: rows and columns of the scaled matrix sum to what they should, and a
// block of keys that every block is close to is not matched with all of them.
#include <cmath>

#include "attention/dynamic_pattern.h"
#include "conformance/sparse_streams.h"

namespace millrace {
namespace {

class Means final : public BlockSummaries {
 public:
  std::vector<std::vector<float>> blocks;
  std::span<const float> operator[](int64_t block) const override { return blocks[static_cast<size_t>(block)]; }
};

std::vector<float> balance(const std::string& text, const Means& means) {
  const auto pattern = testing::pattern_from(text);
  const DynamicPattern* dynamic = dynamic_pattern(pattern.get());
  std::vector<float> added(means.blocks.size(), NAN);
  std::vector<float> work(static_cast<size_t>(dynamic->balance_floats(std::ssize(added))), NAN);
  dynamic->balance(means, added, work);
  return added;
}

double score(const Means& means, size_t i, size_t j) {
  double sum = 0;
  for (size_t d = 0; d < means.blocks[i].size(); ++d) sum += double{means.blocks[i][d]} * double{means.blocks[j][d]};
  return sum / std::sqrt(static_cast<double>(means.blocks[i].size()));
}

TEST(Sinkhorn, RowsAndColumnsHaveTheirShares) {
  Means means;
  for (uint64_t i = 0; i < 24; ++i) {
    means.blocks.push_back(testing::random_values(32, i));
    for (float& x : means.blocks.back()) x *= 0.5f + 0.5f * static_cast<float>(i % 5);
  }
  const auto column_error = [&](const std::string& text) {
    const auto added = balance(text, means);
    std::vector<double> sums(24), even(24);
    for (size_t i = 1; i < 24; ++i) {
      double row = 0;
      for (size_t j = 0; j < i; ++j) row += std::exp(score(means, i, j) + double{added[j]});
      for (size_t j = 0; j < i; ++j) {
        sums[j] += std::exp(score(means, i, j) + double{added[j]}) / row;
        even[j] += 1.0 / static_cast<double>(i);
      }
    }
    double most = 0;
    for (size_t j = 0; j < 23; ++j) most = std::max(most, std::abs(sums[j] / even[j] - 1));
    return most;
  };
  EXPECT_GT(column_error("sinkhorn:rows=64,temperature=1,rounds=0"), 0.5);
  EXPECT_LT(column_error("sinkhorn:rows=64,temperature=1,rounds=100"), 0.01);
}

TEST(Sinkhorn, ABlockThatAllAreCloseToIsSharedOut) {
  Means means;
  for (uint64_t i = 0; i < 20; ++i) {
    means.blocks.push_back(testing::random_values(64, i));
    for (float& x : means.blocks.back()) x += i == 7 ? 3.0f : 1.0f;
  }
  const auto matches = [&](const std::string& text) {  // of block 7, by the highest of each row
    const auto added = balance(text, means);
    int64_t count = 0;
    for (size_t i = 8; i < 20; ++i) {
      size_t best = 0;
      for (size_t j = 1; j < i; ++j)
        if (score(means, i, j) + double{added[j]} > score(means, i, best) + double{added[best]}) best = j;
      count += best == 7;
    }
    return count;
  };
  EXPECT_EQ(matches("sinkhorn:rows=64,temperature=1,rounds=0"), 12);
  EXPECT_LT(matches("sinkhorn:rows=64,temperature=1,rounds=20"), 6);
}

TEST(Sinkhorn, BlocksThatAreAlikeStayAsTheyAre) {
  Means means;
  means.blocks.assign(9, std::vector<float>(16, 0.5f));
  for (const size_t blocks : {9, 2, 1, 0}) {
    means.blocks.resize(blocks);
    for (float x : balance("sinkhorn:rows=5", means)) EXPECT_NEAR(x, 0, 1e-5) << blocks;
  }
}

TEST(Sinkhorn, NothingIsAddedThatIsNoNumber) {
  Means means;
  for (uint64_t i = 0; i < 12; ++i) means.blocks.push_back(testing::random_values(16, i));
  for (float bad : {NAN, INFINITY, 1e30f, -1e30f, 0.0f}) {
    means.blocks[5].assign(16, bad);
    for (float x : balance("sinkhorn:temperature=0.01,rounds=30", means)) EXPECT_TRUE(std::isfinite(x)) << bad;
  }
}

}  // namespace
}  // namespace millrace
