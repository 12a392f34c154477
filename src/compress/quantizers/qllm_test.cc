// QLLM: channels are taken apart and put together as the formulas say, at no cost where channels are alike, and
// rounding costs less afterwards.
#include <map>

#include "compress/quantizers/weight_activation_test.h"

namespace millrace {
namespace {

using namespace testing;

constexpr const char* kExact = "qllm:threshold=0.3,inputs=none,format=f32";

// Every channel but the outliers, which are odd, has a neighbour that is a multiple of it.
std::vector<float> alike_rows(int64_t rows, uint32_t seed) {
  std::vector<float> out = outlier_rows(rows, seed);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < kTestCols; c += 2)
      out[static_cast<size_t>(r * kTestCols + c)] =
          -0.5f * out[static_cast<size_t>(r * kTestCols + (c + 3) % kTestCols)];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 4; c < kTestCols; c += 50)  // of the outliers
      out[static_cast<size_t>(r * kTestCols + c)] = 0.25f * out[static_cast<size_t>(r * kTestCols + 1)];
  return out;
}

std::map<int32_t, int> copies_of(const InputChange& change) {
  std::map<int32_t, int> out;
  for (int32_t c : change.order) ++out[c];
  return out;
}

TEST(Qllm, TakesOutliersApart) {
  ThreadPool pool(2);
  const auto statistics = calibrated(pool);
  const PassMatrix matrix = passed("qllm:threshold=0.3", "q4_0", pool);
  const InputChange& change = matrix.parts.input;
  ASSERT_EQ(change.order.size(), static_cast<size_t>(kTestCols));
  const float threshold = 0.3f * statistics.largest(57);
  const auto copies = copies_of(change);
  int64_t more = 0, gone = 0;
  for (int32_t c = 0; c < kTestCols; ++c) {
    const float parts = std::ceil(statistics.largest(static_cast<size_t>(c)) / threshold);
    const auto found = copies.find(c);
    const int count = found == copies.end() ? 0 : found->second;
    if (count == 0) {
      EXPECT_EQ(parts, 1) << c;
      ++gone;
    } else {
      EXPECT_EQ(count, parts) << c;
      more += count - 1;
    }
    EXPECT_EQ(change.scale[static_cast<size_t>(c)], 1 / parts) << c;
    EXPECT_LE(statistics.largest(static_cast<size_t>(c)) * change.scale[static_cast<size_t>(c)], threshold * 1.0001f);
  }
  EXPECT_GE(more, 3);
  EXPECT_EQ(more, gone);
}

// What leaves is a multiple of what stays, on the calibration text and beyond it.
TEST(Qllm, ChannelsThatAreAlikeCostNothing) {
  ThreadPool pool(2);
  const auto statistics = statistics_of(alike_rows(300, 77), kTestCols, pool);
  PassMatrix matrix = matrix_in("f32"), plain = matrix;
  auto row = pass_of(kExact)->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_GE(row->figures.at(0).second, 2);
  EXPECT_LT(copies_of(matrix.parts.input).size(), static_cast<size_t>(kTestCols));
  const std::vector<float> x = alike_rows(60, 1234);
  const std::vector<double> want = outputs(plain, x), found = outputs(matrix, x);
  EXPECT_LT(error_between(found, want), 1e-8 * error_between(want, std::vector<double>(want.size())));
}

// The weights that the parts amount to: those of taken channels as they were, others with the ones that left.
TEST(Qllm, PutsTheCheapestChannelsTogether) {
  ThreadPool pool(1);
  const auto statistics = calibrated(pool);
  const PassMatrix plain = matrix_in("f32");
  PassMatrix matrix = passed(kExact, "f32", pool);
  encode_rest(matrix);
  const std::vector<float> whole = whole_matrix(matrix);
  const auto copies = copies_of(matrix.parts.input);
  const auto moment = [&](int64_t i, int64_t j) { return statistics.moments.at(std::min(i, j), std::max(i, j)); };
  double lost = 0;  // of the outputs, in total
  for (int64_t c = 0; c < kTestCols; ++c) {
    if (copies.contains(static_cast<int32_t>(c))) continue;
    double norm = 0, best = INFINITY;
    for (int64_t r = 0; r < kTestRows; ++r) {
      norm += std::pow(double{plain.values[static_cast<size_t>(r * kTestCols + c)]}, 2);
      EXPECT_EQ(whole[static_cast<size_t>(r * kTestCols + c)], 0);
    }
    for (int64_t b = 0; b < kTestCols; ++b)
      if (b != c && copies.contains(static_cast<int32_t>(b)) && copies.at(static_cast<int32_t>(b)) == 1)
        best = std::min(best, norm * (moment(c, c) - moment(c, b) * moment(c, b) / moment(b, b)));
    lost += best;
  }
  EXPECT_GT(lost, 0);
  const double change = squared_outputs(whole, plain.values, statistics.moments);
  EXPECT_LT(change, 1.5 * lost);  // single errors add up where they are not correlated
  EXPECT_LT(change, 0.05 * squared_outputs(plain.values, std::vector<float>(plain.values.size()), statistics.moments));
  for (const auto& [c, count] : copies)
    for (int64_t r = 0; count > 1 && r < kTestRows; ++r)
      EXPECT_NEAR(whole[static_cast<size_t>(r * kTestCols + c)], plain.values[static_cast<size_t>(r * kTestCols + c)],
                  1e-6);
}

TEST(Qllm, RoundingCostsLess) {
  const double plain = held_out_error("round_inputs:format=q4_0,inputs=int4", "q4_0");
  EXPECT_LT(held_out_error("qllm", "q4_0"), 0.7 * plain);
}

TEST(Qllm, SaysWhatIsWrong) {
  EXPECT_EQ(make_pass("qllm:format=").error().message,
            "pass qllm: format: is empty; give the number format of the weights, such as q4_0");
  ThreadPool pool(1);
  PassMatrix matrix = matrix_in("q4_0");
  EXPECT_EQ(pass_of("qllm:threshold=0.001")->apply(matrix, calibrated(pool), pool)->why,
            "too many of its inputs are above the threshold");
  const auto zero = statistics_of(std::vector<float>(10 * kTestCols), kTestCols, pool);
  EXPECT_EQ(pass_of("qllm")->apply(matrix, zero, pool)->why, "its inputs are zero or not finite");
  EXPECT_TRUE(matrix.parts.empty());
}

}  // namespace
}  // namespace millrace
