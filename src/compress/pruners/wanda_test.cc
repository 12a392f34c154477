// Wanda's mask against a sort of the scores.
#include <algorithm>
#include <numeric>

#include "compress/compress_test.h"

namespace millrace {
namespace {

using namespace testing;

// The mask of a plain sort: of each group of a row the first `count` by score, then by column, are zero.
std::vector<uint8_t> sorted_mask(const PassMatrix& matrix, const LinearStatistics& statistics, int64_t group,
                                 int64_t count) {
  std::vector<uint8_t> kept(matrix.values.size(), 1);
  for (int64_t begin = 0; begin < std::ssize(kept); begin += group) {
    std::vector<int64_t> at(static_cast<size_t>(group));
    std::iota(at.begin(), at.end(), begin);
    const auto score = [&](int64_t i) {
      return std::fabs(double{matrix.values[static_cast<size_t>(i)]}) *
             std::sqrt(statistics.squares[static_cast<size_t>(i % matrix.cols)]);
    };
    std::stable_sort(at.begin(), at.end(), [&](int64_t a, int64_t b) { return score(a) < score(b); });
    for (int64_t i = 0; i < count; ++i) kept[static_cast<size_t>(at[static_cast<size_t>(i)])] = 0;
  }
  return kept;
}

TEST(Wanda, PrunesTheLowestScores) {
  const int64_t rows = 13, cols = 96;
  struct WandaCase {
    const char* options;
    int64_t group, count;
  };
  for (const WandaCase& one :
       {WandaCase{"sparsity=0.5", cols, 48}, WandaCase{"sparsity=0.3", cols, 28}, WandaCase{"sparsity=0", cols, 0},
        WandaCase{"sparsity=1", cols, cols}, WandaCase{"pattern=2:4", 4, 2}, WandaCase{"pattern=4:8", 8, 4},
        WandaCase{"pattern=1:32", 32, 31}, WandaCase{"pattern=4:4", 4, 0}}) {
    for (int threads : {1, 3}) {
      ThreadPool pool(threads);
      const auto statistics = statistics_of(correlated_rows(70, cols, 5), cols, pool);
      PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
      for (size_t i = 0; i < 300; ++i) matrix.values[i] = i % 3 == 0 ? 0.5f : matrix.values[i];  // some equal scores
      const auto before = matrix.values;
      auto row = pass_of(std::string("wanda:") + one.options)->apply(matrix, statistics, pool);
      ASSERT_TRUE(row.ok());
      EXPECT_EQ(row->action, "pruned");
      EXPECT_EQ(matrix.kept, sorted_mask(matrix, statistics, one.group, one.count)) << one.options;
      EXPECT_EQ(matrix.values, before);  // the mask alone says what is zero
    }
  }
}

TEST(Wanda, EqualScoresArePrunedInOrder) {
  ThreadPool pool(1);
  LinearStatistics statistics;
  statistics.rows = 1;
  statistics.squares.assign(8, 4.0);
  PassMatrix matrix = matrix_of(1, 8, "f32", 6);
  matrix.values.assign(8, 1.0f);
  ASSERT_TRUE(pass_of("wanda:pattern=2:4")->apply(matrix, statistics, pool).ok());
  EXPECT_EQ(matrix.kept, (std::vector<uint8_t>{0, 0, 1, 1, 0, 0, 1, 1}));
}

// The norms decide, not the weights alone.
TEST(Wanda, AnInputThatIsAlwaysSmallIsPrunedFirst) {
  ThreadPool pool(1);
  LinearStatistics statistics;
  statistics.rows = 1;
  statistics.squares = {1e-6, 1, 1, 1e-6};
  PassMatrix matrix = matrix_of(1, 4, "f32", 6);
  matrix.values = {10, 1, -1, 10};
  ASSERT_TRUE(pass_of("wanda")->apply(matrix, statistics, pool).ok());
  EXPECT_EQ(matrix.kept, (std::vector<uint8_t>{0, 1, 1, 0}));
}

TEST(Wanda, LeavesTheHeadAndOddRows) {
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(9, 6, 5), 6, pool);
  PassMatrix head = matrix_of(2, 6, "f32", 6);
  head.id = {};
  auto row = pass_of("wanda")->apply(head, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "left");
  EXPECT_EQ(row->why, "the paper prunes the layers' matrices only");
  PassMatrix odd = matrix_of(2, 6, "f32", 6);
  row = pass_of("wanda:pattern=2:4")->apply(odd, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "left");
  EXPECT_EQ(row->why, "6 columns are not a multiple of 4");
  EXPECT_TRUE(odd.kept.empty());
}

TEST(Wanda, RefusesPatterns) {
  for (const char* pattern : {"2", "2:", ":4", "5:4", "-1:4", "2:4:8", "a:b", "2:0", "2:257", "0x2:4", "0:4", "0:1"})
    EXPECT_EQ(make_pass(std::string("wanda:pattern=") + pattern).error().message,
              std::string("pass wanda: pattern '") + pattern +
                  "': must be N:M with N of 1 to M and M of 1 to 256, such as 2:4");
}

}  // namespace
}  // namespace millrace
