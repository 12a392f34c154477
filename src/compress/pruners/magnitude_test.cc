// Magnitude pruning against a sort.
#include <algorithm>
#include <numeric>

#include "compress/pruners/pruner_test.h"

namespace millrace {
namespace {

using namespace testing;

std::vector<uint8_t> smallest_mask(const PassMatrix& matrix, int64_t group, int64_t count) {
  std::vector<uint8_t> kept(matrix.values.size(), 1);
  for (int64_t begin = 0; begin < std::ssize(kept); begin += group) {
    std::vector<int64_t> at(static_cast<size_t>(group));
    std::iota(at.begin(), at.end(), begin);
    std::ranges::stable_sort(at, {}, [&](int64_t i) { return std::fabs(matrix.values[static_cast<size_t>(i)]); });
    for (int64_t i = 0; i < count; ++i) kept[static_cast<size_t>(at[static_cast<size_t>(i)])] = 0;
  }
  return kept;
}

TEST(Magnitude, PrunesTheSmallestOfTheMatrixRowOrGroup) {
  const int64_t rows = 11, cols = 40, all = rows * cols;
  struct MagnitudeCase {
    const char* options;
    int64_t group, count;
  };
  for (const MagnitudeCase& one :
       {MagnitudeCase{"sparsity=0.5", all, all / 2}, MagnitudeCase{"sparsity=0.3", all, 132},
        MagnitudeCase{"sparsity=0.3,scope=row", cols, 12}, MagnitudeCase{"pattern=2:4", 4, 2},
        MagnitudeCase{"sparsity=0", all, 0}, MagnitudeCase{"sparsity=1", all, all}}) {
    for (int threads : {1, 3}) {
      ThreadPool pool(threads);
      PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
      for (size_t i = 0; i < 200; i += 2) matrix.values[i] = i % 3 == 0 ? 0.5f : -0.5f;  // equal ones
      ASSERT_TRUE(pass_of(std::string("magnitude:") + one.options)->apply(matrix, {}, pool).ok());
      EXPECT_EQ(matrix.kept, smallest_mask(matrix, one.group, one.count)) << one.options;
    }
  }
}

// What an earlier pass pruned counts as the first.
TEST(Magnitude, AddsToAnEarlierMask) {
  ThreadPool pool(1);
  PassMatrix matrix = matrix_of(1, 6, "f32", 6);
  matrix.values = {9, 1, 8, 2, 7, 3};
  matrix.kept = {0, 1, 1, 1, 1, 1};
  ASSERT_TRUE(pass_of("magnitude:sparsity=0.5")->apply(matrix, {}, pool).ok());
  EXPECT_EQ(matrix.kept, (std::vector<uint8_t>{0, 0, 1, 0, 1, 1}));
}

TEST(Magnitude, SaysWhatIsWrong) {
  EXPECT_EQ(make_pass("magnitude:scope=model").error().message, "pass magnitude: scope 'model': must be matrix or row");
  EXPECT_EQ(pass_of("magnitude")->needs(), kNoStatistics);
}

}  // namespace
}  // namespace millrace
