// FineQuant's groups: whole rows where weights are alike, small ones around outliers, and what they bring.
#include <gtest/gtest.h>

#include "compress/compress_test.h"
#include "compress/rounding/group_scales.h"
#include "contains.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kFineRows = 24, kFineCols = 512;

// One weight in `every` is much larger than the others; 0: none.
PassMatrix with_large_weights(int64_t every, const char* format) {
  PassMatrix out = matrix_of(kFineRows, kFineCols, format, 91);
  for (size_t i = 5; every > 0 && i < out.values.size(); i += static_cast<size_t>(every)) out.values[i] *= 30;
  return out;
}

double group_of(PassMatrix& matrix, const std::string& options) {
  ThreadPool pool(2);
  auto done = pass_of("finequant" + options)->apply(matrix, {}, pool);
  EXPECT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->action, "quantized");
  return done->figures.at(0).second;
}

double squared_error(const PassMatrix& matrix, const std::vector<float>& original) {
  const std::vector<float> rounded = whole_matrix(matrix);
  double sum = 0;
  for (size_t i = 0; i < rounded.size(); ++i) sum += std::pow(double{rounded[i]} - original[i], 2);
  return sum;
}

TEST(FineQuant, HalvesGroupsWhereOutliersAre) {
  for (const char* format : {"q4_0", "q4_1", "q8_0"}) {
    const std::string option = std::string(":alpha=0.15,format=") + format;
    PassMatrix plain = with_large_weights(0, format), rare = with_large_weights(701, format),
               frequent = with_large_weights(16, format);
    EXPECT_EQ(group_of(plain, option), kFineCols) << format;
    EXPECT_EQ(group_of(rare, option), 32) << format;
    // An outlier in every group: halving narrows nothing.
    EXPECT_EQ(group_of(frequent, option), kFineCols) << format;
  }
}

// The error is less by far than with one scale a row, which is all that is left of the small weights there.
TEST(FineQuant, SavesTheWeightsBesideOutliers) {
  ThreadPool pool(2);
  PassMatrix fine = with_large_weights(701, "q4_0"), rows = fine;
  const std::vector<float> original = fine.values;
  group_of(fine, "");
  round_in_groups(rows, 0, pool);
  EXPECT_LT(squared_error(fine, original), 0.5 * squared_error(rows, original));
}

// Groups are those of round_in_groups(), whatever the threads; limits count.
TEST(FineQuant, RoundsInItsGroups) {
  PassMatrix one = with_large_weights(701, "q4_0"), two = one;
  const double group = group_of(one, ":group=128");
  EXPECT_EQ(group, 128);
  ThreadPool pool(1);
  round_in_groups(two, 128, pool);
  EXPECT_EQ(one.encoded, two.encoded);
  PassMatrix always = with_large_weights(0, "q4_0");
  EXPECT_EQ(group_of(always, ":alpha=0"), 32);
}

TEST(FineQuant, LeavesWhatCannotShareScales) {
  ThreadPool pool(1);
  PassMatrix matrix = matrix_of(4, 256, "q4_k", 3);
  auto done = pass_of("finequant")->apply(matrix, {}, pool);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->action, "left");
  EXPECT_EQ(done->why, "its format is q4_k");
  EXPECT_CONTAINS(make_pass("finequant:format=q4_k").error().message,
                  "format 'q4_k': must be one of q8_0, q4_0, q4_1, q5_0 and q5_1");
  EXPECT_CONTAINS(make_pass("finequant:group=48").error().message, "group 48: must be a multiple of 32 columns");
}

}  // namespace
}  // namespace millrace
