// AWQ: before rounding the scaled matrix is the same one, alpha is the best of the grid by the plain definition, and
// outputs are nearer than those of rounding where few inputs are large.
#include "compress/compress_test.h"
#include "contains.h"

namespace millrace {
namespace {

using namespace testing;

// A few inputs are far larger than the others, as in language models.
std::vector<float> rows_of_few_large_inputs(int64_t rows, int64_t cols, uint32_t seed) {
  std::vector<float> out = normal_values(rows * cols, seed);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; c += 29) out[static_cast<size_t>(r * cols + c)] *= 12;
  return out;
}

TEST(Awq, ScalingAloneKeepsTheMatrix) {
  ThreadPool pool(2);
  const int64_t rows = 9, cols = 96;
  const auto statistics = statistics_of(rows_of_few_large_inputs(200, cols, 3), cols, pool);
  const PassMatrix original = matrix_of(rows, cols, "q4_0", 4);
  PassMatrix matrix = original;
  auto row = pass_of("awq:format=")->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "scaled");
  EXPECT_TRUE(matrix.encoded.empty());
  ASSERT_EQ(std::ssize(matrix.parts.input.scale), cols);
  EXPECT_NE(matrix.values, original.values);
  std::vector<float> back = matrix.values;
  apply_input_change(matrix.parts.input, cols, back, pool);
  for (size_t i = 0; i < back.size(); ++i)
    ASSERT_NEAR(back[i], original.values[i], 1e-6 * std::fabs(original.values[i])) << i;
  // Large inputs are scaled down, and their columns up.
  for (int64_t c = 0; c < cols; ++c)
    EXPECT_EQ(matrix.parts.input.scale[static_cast<size_t>(c)] < 0.7, c % 29 == 0) << c;
}

TEST(Awq, AlphaIsTheBestOfTheGrid) {
  ThreadPool pool(2);
  const int64_t rows = 8, cols = 64, steps = 5;
  const auto statistics = statistics_of(rows_of_few_large_inputs(200, cols, 5), cols, pool);
  const PassMatrix original = matrix_of(rows, cols, "q4_0", 6);
  double least = INFINITY, best = -1;
  for (int64_t i = 0; i <= steps; ++i) {
    const double alpha = static_cast<double>(i) / steps;
    std::vector<double> s;
    for (int64_t c = 0; c < cols; ++c) s.push_back(std::pow(std::sqrt(statistics.moments.at(c, c)), alpha));
    const double middle = std::sqrt(*std::ranges::max_element(s) * *std::ranges::min_element(s));
    PassMatrix scaled = original;
    for (size_t k = 0; k < scaled.values.size(); ++k)
      scaled.values[k] = static_cast<float>(scaled.values[k] * s[k % s.size()] / middle);
    std::vector<float> rounded = rounded_matrix(scaled);
    for (size_t k = 0; k < rounded.size(); ++k) rounded[k] = static_cast<float>(rounded[k] / s[k % s.size()] * middle);
    const double error = squared_outputs(original.values, rounded, statistics.moments);
    if (error < least) least = error, best = alpha;
  }
  PassMatrix matrix = original;
  auto row = pass_of("awq:grid=5,clip=0,fit=plain")->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_GT(best, 0);
  EXPECT_DOUBLE_EQ(row->figures.at(0).second, best);
  EXPECT_NEAR(squared_outputs(original.values, whole_matrix(matrix), statistics.moments), least, 1e-3 * least);
}

TEST(Awq, OutputsAreNearerThanThoseOfRounding) {
  ThreadPool pool(2);
  const int64_t rows = 16, cols = 256;
  const auto statistics = statistics_of(rows_of_few_large_inputs(600, cols, 7), cols, pool);
  for (const char* format : {"q4_0", "q3_k", "q2_k"}) {
    const PassMatrix original = matrix_of(rows, cols, format, 8);
    const double plain = squared_outputs(original.values, rounded_matrix(original), statistics.moments);
    double before = plain;
    for (const char* options : {",clip=0,fit=plain", ",fit=plain", ""}) {
      PassMatrix matrix = original;
      ASSERT_TRUE(pass_of(std::string("awq:format=") + format + options)->apply(matrix, statistics, pool).ok());
      const double found = squared_outputs(original.values, whole_matrix(matrix), statistics.moments);
      EXPECT_LT(found, 0.8 * plain) << format << options;
      EXPECT_LT(found, 1.02 * before) << format << options;  // each brings more
      before = found;
    }
    // And what GPTQ rounds after it.
    PassMatrix matrix = original;
    ASSERT_TRUE(pass_of("awq:format=")->apply(matrix, statistics, pool).ok());
    ASSERT_TRUE(pass_of(std::string("gptq:fit=search,format=") + format)->apply(matrix, statistics, pool).ok());
    EXPECT_LT(squared_outputs(original.values, whole_matrix(matrix), statistics.moments), before) << format;
  }
}

TEST(Awq, ThreadsChangeNoBit) {
  std::vector<uint8_t> first;
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto statistics = statistics_of(correlated_rows(200, 96, 5), 96, pool);
    PassMatrix matrix = matrix_of(21, 96, "q4_1", 6);
    ASSERT_TRUE(pass_of("awq:format=q4_1")->apply(matrix, statistics, pool).ok());
    if (first.empty()) first = matrix.encoded;
    EXPECT_EQ(matrix.encoded, first);
  }
}

TEST(Awq, OnlyClipsMatricesThatCannotBeScaled) {
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(200, 96, 5), 96, pool);
  PassMatrix matrix = matrix_of(4, 96, "q4_0", 6);
  matrix.no_parts = "an embedding table cannot have weight parts";
  PassMatrix scaled = matrix;
  auto row = pass_of("awq:format=")->apply(scaled, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "left");
  EXPECT_EQ(row->why, "an embedding table cannot have weight parts");
  row = pass_of("awq")->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "quantized");
  EXPECT_TRUE(matrix.parts.empty());
  EXPECT_LT(squared_outputs(matrix.values, whole_matrix(matrix), statistics.moments),
            squared_outputs(matrix.values, rounded_matrix(matrix), statistics.moments));
}

// gptq after a pass that rotates: its second moments are those of the rotated inputs.
TEST(ChangedMoments, AreThoseOfTheChangedInputs) {
  ThreadPool pool(2);
  const int64_t rows = 150, cols = 96;
  const std::vector<float> x = correlated_rows(rows, cols, 11);
  InputChange change{.scale = normal_values(cols, 12), .hadamard = 32};
  for (int64_t c = 0; c < cols; ++c) change.order.push_back(static_cast<int32_t>(c * 37 % cols));
  for (const InputChange& one : {change, InputChange{.scale = change.scale}, InputChange{.hadamard = 8}}) {
    // t(x) of the unit vectors is T; apply_input_change multiplies rows by it from the right, so identity rows give T.
    std::vector<float> t(static_cast<size_t>(cols * cols));
    for (int64_t c = 0; c < cols; ++c) t[static_cast<size_t>(c * cols + c)] = 1;
    apply_input_change(one, cols, t, pool);
    std::vector<float> changed(x.size());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < cols; ++i) {
        double sum = 0;
        for (int64_t c = 0; c < cols; ++c)
          sum += double{t[static_cast<size_t>(i * cols + c)]} * x[static_cast<size_t>(r * cols + c)];
        changed[static_cast<size_t>(r * cols + i)] = static_cast<float>(sum);
      }
    const SecondMoments want = statistics_of(changed, cols, pool).moments;
    const SecondMoments found = changed_moments(statistics_of(x, cols, pool).moments, one);
    for (int64_t i = 0; i < cols; ++i)
      for (int64_t j = i; j < cols; ++j)
        ASSERT_NEAR(found.at(i, j), want.at(i, j), 1e-4 * std::sqrt(want.at(i, i) * want.at(j, j))) << i << " " << j;
  }
}

TEST(Gptq, RoundsRotatedMatricesByTheirOwnInputs) {
  ThreadPool pool(2);
  const int64_t rows = 12, cols = 128;
  const auto statistics = statistics_of(correlated_rows(400, cols, 13), cols, pool);
  const PassMatrix original = matrix_of(rows, cols, "q4_0", 14);
  PassMatrix rotated = original, both = original;
  ASSERT_TRUE(pass_of("rotate:format=q4_0")->apply(rotated, statistics, pool).ok());
  rotated.encoded.resize(static_cast<size_t>(rows * rotated.format->row_bytes(cols)));
  rotated.format->encode(rotated.values.data(), rotated.encoded.data(), rows * cols);
  ASSERT_TRUE(pass_of("rotate:format=")->apply(both, statistics, pool).ok());
  for (const char* options : {"gptq", "gptq:order=activation,permute=true"}) {
    PassMatrix one = both;
    ASSERT_TRUE(pass_of(options)->apply(one, statistics, pool).ok());
    EXPECT_LT(squared_outputs(original.values, whole_matrix(one), statistics.moments),
              0.8 * squared_outputs(original.values, whole_matrix(rotated), statistics.moments))
        << options;
  }
}

TEST(Awq, RefusesOptions) {
  EXPECT_CONTAINS(make_pass("awq:format=f16").error().message, "format 'f16': is not a format of levels");
}

}  // namespace
}  // namespace millrace
