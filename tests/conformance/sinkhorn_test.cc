// What sinkhorn adds to the scores of blocks: rows and columns of the scaled matrix sum to what they should, and a
// block of keys that every block is close to is not matched with all of them.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "attention/dynamic_pattern.h"
#include "conformance/sparse_streams.h"

namespace millrace {
namespace {

class Means final : public BlockSummaries {
 public:
  std::vector<std::vector<float>> blocks;
  std::span<const float> operator[](int64_t block) const override { return blocks[static_cast<size_t>(block)]; }
};

std::vector<float> balance(const std::string& text, const Means& means, const PatternPlace& at = {}) {
  const auto pattern = testing::pattern_from(text);
  const DynamicPattern* dynamic = dynamic_pattern(pattern.get());
  std::vector<float> added(means.blocks.size(), NAN);
  std::vector<float> work(static_cast<size_t>(dynamic->balance_floats(std::ssize(added))), NAN);
  dynamic->balance(at, means, added, work);
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

// Of tiny random layers: JSON, and what it says.
struct TinyNetwork {
  static constexpr int64_t kDims = 8, kHidden = 5, kBlocks = 12, kHeads = 2;
  std::vector<std::vector<float>> a, pool, b, sort;  // of each layer

  TinyNetwork() {
    for (uint64_t layer : {0, 1}) {
      pool.push_back(testing::random_values(kHeads * kHidden * kDims, 10 + layer));
      a.push_back(testing::random_values(kHeads * kHidden, 20 + layer));
      sort.push_back(testing::random_values(kHeads * kBlocks * kHidden, 30 + layer));
      b.push_back(testing::random_values(kHeads * kBlocks, 40 + layer));
    }
  }
  std::string text(const char* file = "millrace sorting network") const {
    const auto list = [](const std::vector<float>& values) {
      std::string out;
      for (float x : values) out += (out.empty() ? "" : ",") + fmt::format("{}", x);
      return "[" + out + "]";
    };
    std::string layers;
    for (size_t l = 0; l < a.size(); ++l)
      layers += std::string(l > 0 ? "," : "") + R"({"A":)" + list(pool[l]) + R"(,"a":)" + list(a[l]) + R"(,"B":)" +
                list(sort[l]) + R"(,"b":)" + list(b[l]) + "}";
    return fmt::format(R"({{"file":"{}","dims":{},"hidden":{},"blocks":{},"layers":[{}]}})", file, kDims, kHidden,
                       kBlocks, layers);
  }
  // Tay et al., 2020, section 3.1: the scores of a block of queries, from the sum of all keys before it.
  std::vector<double> scores(size_t layer, int64_t head, const std::vector<double>& x) const {
    std::vector<double> hidden, out;
    for (int64_t h = head * kHidden; h < (head + 1) * kHidden; ++h) {
      double sum = a[layer][static_cast<size_t>(h)];
      for (int64_t d = 0; d < kDims; ++d)
        sum += double{pool[layer][static_cast<size_t>(h * kDims + d)]} * x[static_cast<size_t>(d)];
      hidden.push_back(std::max(0.0, sum));
    }
    for (int64_t j = head * kBlocks; j < (head + 1) * kBlocks; ++j) {
      double sum = b[layer][static_cast<size_t>(j)];
      for (int64_t h = 0; h < kHidden; ++h)
        sum += double{sort[layer][static_cast<size_t>(j * kHidden + h)]} * hidden[static_cast<size_t>(h)];
      out.push_back(std::max(0.0, sum));
    }
    return out;
  }
};

class SortingNetworkFile {
 public:
  explicit SortingNetworkFile(const std::string& text) : path_(::testing::TempDir() + "sorting_network.json") {
    std::ofstream(path_) << text;
  }
  ~SortingNetworkFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The row of a block of queries after the rounds, against the same in double.
TEST(Sinkhorn, ASortingNetworkScoresBlocks) {
  const TinyNetwork network;
  const SortingNetworkFile file(network.text());
  Means means;
  for (uint64_t i = 0; i < 10; ++i) {
    means.blocks.push_back(testing::random_values(TinyNetwork::kDims, i));
    for (float& x : means.blocks.back()) x *= 0.1f;
  }
  constexpr size_t kRows = 6;
  for (const int rounds : {0, 1, 4})
    for (const PatternPlace& at : {PatternPlace{0, 0, 2}, PatternPlace{0, 1, 2}, PatternPlace{1, 1, 2}}) {
      SCOPED_TRACE(rounds);
      const auto added = balance(
          fmt::format("sinkhorn:block=16,rows={},rounds={},temperature=2,scorer={}", kRows, rounds, file.path()), means,
          at);
      const size_t n = means.blocks.size();
      std::vector<std::vector<double>> rows(n + 1);
      std::vector<double> x(TinyNetwork::kDims), v(n, 1.0), even(n);
      for (size_t i = 1; i <= n; ++i) {
        for (size_t d = 0; d < x.size(); ++d) x[d] += 16 * double{means.blocks[i - 1][d]};
        if (i + kRows <= n) continue;
        const auto scores = network.scores(static_cast<size_t>(at.layer), at.head, x);
        for (size_t j = 0; j < i; ++j) {
          rows[i].push_back(std::exp(scores[j] / 2));
          even[j] += 1.0 / static_cast<double>(i);
        }
      }
      for (int round = 0; round < rounds; ++round) {
        std::vector<double> sums(n);
        for (const auto& row : rows) {
          double sum = 0;
          for (size_t j = 0; j < row.size(); ++j) sum += row[j] * v[j];
          for (size_t j = 0; j < row.size(); ++j) sums[j] += row[j] / sum;
        }
        for (size_t j = 0; j < n; ++j) v[j] = even[j] / sums[j];
      }
      for (size_t j = 1; j < n; ++j)  // a factor of the whole row is free
        EXPECT_NEAR(added[j] - added[0], std::log(rows[n][j] * v[j] / (rows[n][0] * v[0])), 1e-3) << j;
    }
}

TEST(Sinkhorn, NetworksThatAreNoneAreRefused) {
  const auto message = [](const std::string& text) {
    const SortingNetworkFile file(text);
    const auto made = make_attention_pattern("sinkhorn:scorer=" + file.path());
    return made.ok() ? "" : made.error().message.substr(made.error().message.rfind("json: ") + 6);
  };
  const TinyNetwork good;
  EXPECT_EQ(message(good.text()), "");
  EXPECT_EQ(message("{}"), "has no sorting network");
  EXPECT_EQ(message(good.text("centroids")), "has no sorting network");
  TinyNetwork odd;
  odd.b[1].pop_back();
  EXPECT_EQ(message(odd.text()), "layers[1]: A, a, B and b must be numbers of whole heads");
  EXPECT_EQ(message(R"({"file":"millrace sorting network","dims":0})"), "dims: must be 1 to 1024");
  const auto none = make_attention_pattern("sinkhorn:scorer=/none");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message, "attention sinkhorn: /none: cannot be read: No such file or directory");
}

}  // namespace
}  // namespace millrace
