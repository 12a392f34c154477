// QuIP: multiplied columns and inputs are the same matrix, incoherence rises, and outputs of few bits are nearer than
// those of rounding and of GPTQ.
#include "compress/compress_test.h"
#include "contains.h"

namespace millrace {
namespace {

using namespace testing;

// The largest weight over the root of the mean square.
double peak(const std::vector<float>& values) {
  double largest = 0, squares = 0;
  for (float x : values) {
    largest = std::max(largest, std::fabs(double{x}));
    squares += double{x} * x;
  }
  return largest / std::sqrt(squares / static_cast<double>(values.size()));
}

PassMatrix matrix_with_peaks(int64_t rows, int64_t cols, const char* format, uint32_t seed) {
  PassMatrix out = matrix_of(rows, cols, format, seed);
  for (size_t i = 0; i < out.values.size(); i += 41) out.values[i] *= 10;
  return out;
}

TEST(Quip, IsTheSameMatrixAndIncoherent) {
  ThreadPool pool(2);
  for (int64_t cols : {256, 96}) {
    const auto statistics = statistics_of(correlated_rows(300, cols, 3), cols, pool);
    const char* format = cols == 256 ? "q2_k" : "q4_0";
    const PassMatrix original = matrix_with_peaks(10, cols, format, 4);
    PassMatrix matrix = original;
    auto row = pass_of(std::string("quip:format=") + format)->apply(matrix, statistics, pool);
    ASSERT_TRUE(row.ok());
    EXPECT_EQ(row->action, "quantized");
    EXPECT_EQ(matrix.parts.input.hadamard, cols == 256 ? 256 : 32);
    for (float sign : matrix.parts.input.scale) EXPECT_EQ(std::fabs(sign), 1.0f);
    EXPECT_LT(peak(matrix.values), 0.6 * peak(original.values));
    std::vector<float> back = matrix.values;
    apply_input_change(matrix.parts.input, cols, back, pool);
    for (size_t i = 0; i < back.size(); ++i) ASSERT_NEAR(back[i], original.values[i], 1e-4) << i;
  }
}

TEST(Quip, OutputsAreNearerThanThoseOfRoundingAndGptq) {
  ThreadPool pool(2);
  const int64_t rows = 16, cols = 256;
  const auto statistics = statistics_of(correlated_rows(600, cols, 5), cols, pool);
  for (const char* format : {"q2_k", "q4_0"}) {
    const PassMatrix original = matrix_with_peaks(rows, cols, format, 6);
    const std::string options = std::string(":format=") + format + ",fit=search";
    PassMatrix gptq = original, ours = original, without = original;
    ASSERT_TRUE(pass_of("gptq" + options)->apply(gptq, statistics, pool).ok());
    ASSERT_TRUE(pass_of("quip" + options)->apply(ours, statistics, pool).ok());
    ASSERT_TRUE(pass_of("quip" + options + ",greedy=0")->apply(without, statistics, pool).ok());
    const auto error = [&](const PassMatrix& one) {
      return squared_outputs(original.values, whole_matrix(one), statistics.moments);
    };
    EXPECT_LT(error(ours), 0.9 * error(gptq)) << format;
    EXPECT_LT(error(ours), error(without)) << format;
    EXPECT_LT(error(ours), 0.5 * squared_outputs(original.values, rounded_matrix(original), statistics.moments))
        << format;
  }
}

TEST(Quip, SignsAreOfTheSeedAndTheInputs) {
  std::vector<float> signs;
  std::vector<uint8_t> first;
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto statistics = statistics_of(correlated_rows(200, 96, 7), 96, pool);
    PassMatrix matrix = matrix_of(21, 96, "q4_0", 8);
    ASSERT_TRUE(pass_of("quip")->apply(matrix, statistics, pool).ok());
    if (first.empty()) first = matrix.encoded, signs = matrix.parts.input.scale;
    EXPECT_EQ(matrix.encoded, first);
    EXPECT_EQ(matrix.parts.input.scale, signs);
    PassMatrix other = matrix_of(21, 96, "q4_0", 8);
    ASSERT_TRUE(pass_of("quip:seed=1")->apply(other, statistics, pool).ok());
    EXPECT_NE(other.parts.input.scale, signs);
  }
}

TEST(Quip, LeavesPrunedMatrices) {
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(100, 64, 9), 64, pool);
  PassMatrix matrix = matrix_of(4, 64, "q4_0", 10);
  ASSERT_TRUE(pass_of("wanda")->apply(matrix, statistics, pool).ok());
  auto row = pass_of("quip")->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->why, "it is pruned, and a rotation would fill its zeros");
}

}  // namespace
}  // namespace millrace
