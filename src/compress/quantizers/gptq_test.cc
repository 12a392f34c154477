// GPTQ against its definition: every column rounded, all later weights moved at once by the inverse of the second
// moments of the columns that are left.
#include "compress/compress_test.h"
#include "compress/rounding/level_grid.h"
#include "contains.h"

namespace millrace {
namespace {

using namespace testing;
using Square = std::vector<std::vector<double>>;

// Gauss-Jordan with the pivots in order; the matrix is positive definite.
Square inverse(Square a) {
  const size_t n = a.size();
  Square out(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) out[i][i] = 1;
  for (size_t p = 0; p < n; ++p) {
    const double pivot = a[p][p];
    for (size_t j = 0; j < n; ++j) a[p][j] /= pivot, out[p][j] /= pivot;
    for (size_t i = 0; i < n; ++i) {
      if (i == p) continue;
      const double factor = a[i][p];
      for (size_t j = 0; j < n; ++j) a[i][j] -= factor * a[p][j], out[i][j] -= factor * out[p][j];
    }
  }
  return out;
}

// Sets the level of one value to the one that decodes nearest to x; returns what it decodes to.
double round_value(const Format& format, uint8_t* block, int value, double x) {
  std::vector<float> values(static_cast<size_t>(format.block_values));
  int best = 0;
  double distance = INFINITY, found = 0;
  for (int level = 0; level < format.levels; ++level) {
    format.set_level(block, value, level);
    format.decode(block, values.data(), format.block_values);
    const double decoded = values[static_cast<size_t>(value)];
    if (std::fabs(decoded - x) >= distance) continue;
    distance = std::fabs(decoded - x);
    best = level;
    found = decoded;
  }
  format.set_level(block, value, best);
  return found;
}

std::vector<uint8_t> reference(const PassMatrix& matrix, const SecondMoments& moments, double damp) {
  const Format& format = *matrix.format;
  const auto n = static_cast<size_t>(matrix.cols);
  const size_t size = static_cast<size_t>(format.block_values);
  Square h(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j)
      h[i][j] =
          moments.at(std::min<int64_t>(i, j), std::max<int64_t>(i, j)) + (i == j ? damp * moments.diagonal_mean() : 0);
  Square left = inverse(h);  // of the columns that are left
  std::vector<double> w(matrix.values.begin(), matrix.values.end());
  std::vector<uint8_t> out(static_cast<size_t>(matrix.rows * format.row_bytes(matrix.cols)));
  std::vector<float> start(size);
  for (size_t c = 0; c < n; ++c) {
    for (int64_t r = 0; r < matrix.rows; ++r) {
      double* row = &w[static_cast<size_t>(r) * n];
      uint8_t* block = &out[static_cast<size_t>(r * format.row_bytes(matrix.cols)) + c / size * format.block_bytes];
      if (c % size == 0) {
        for (size_t j = 0; j < size; ++j) start[j] = static_cast<float>(row[c + j]);
        format.encode(start.data(), block, format.block_values);
      }
      const double rounded = round_value(format, block, static_cast<int>(c % size), row[c]);
      const double error = (row[c] - rounded) / left[c][c];
      for (size_t j = c; j < n; ++j) row[j] -= error * left[c][j];
    }
    const double pivot = left[c][c];
    const std::vector<double> line = left[c];
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) left[i][j] -= line[i] * line[j] / pivot;
  }
  return out;
}

std::vector<float> decoded(const PassMatrix& matrix, const std::vector<uint8_t>& rows) {
  std::vector<float> out(matrix.values.size());
  matrix.format->decode(rows.data(), out.data(), std::ssize(out));
  return out;
}

double output_error(const PassMatrix& matrix, const std::vector<uint8_t>& rows, const SecondMoments& moments) {
  ThreadPool pool(1);
  std::vector<float> change = decoded(matrix, rows);
  for (size_t i = 0; i < change.size(); ++i) change[i] -= matrix.values[i];
  SecondMoments changes(matrix.cols);
  EXPECT_TRUE(changes.add(change.data(), matrix.rows, test_kernels(), pool).ok());
  return trace_product(changes, moments);
}

std::vector<uint8_t> rounded(const PassMatrix& matrix) {
  std::vector<uint8_t> out(static_cast<size_t>(matrix.rows * matrix.format->row_bytes(matrix.cols)));
  matrix.format->encode(matrix.values.data(), out.data(), std::ssize(matrix.values));
  return out;
}

struct GptqCase {
  const char* format;
  int64_t rows, cols;
};
void PrintTo(const GptqCase& one, std::ostream* out) { *out << one.format << " " << one.rows << " x " << one.cols; }

class GptqOf : public ::testing::TestWithParam<GptqCase> {};

TEST_P(GptqOf, ChoosesTheLevelsOfTheDefinition) {
  const auto [format, rows, cols] = GetParam();
  ThreadPool pool(3);
  const auto statistics = statistics_of(correlated_rows(cols * 2, cols, 21), cols, pool);
  PassMatrix matrix = matrix_of(rows, cols, format, 22);
  auto pass = pass_of(std::string("gptq:fit=plain,format=") + format);
  auto row = pass->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok()) << row.error().message;
  EXPECT_EQ(row->action, "quantized");
  EXPECT_EQ(matrix.encoded, reference(matrix, statistics.moments, 0.01));
}

TEST_P(GptqOf, OutputsAreNearerThanThoseOfRounding) {
  const auto [format, rows, cols] = GetParam();
  ThreadPool pool(2);
  const auto statistics = statistics_of(correlated_rows(cols * 2, cols, 31), cols, pool);
  PassMatrix matrix = matrix_of(rows, cols, format, 32);
  const double plain = output_error(matrix, rounded(matrix), statistics.moments);
  for (const char* options : {"", ",fit=plain,clip=8", ",fit=plain,order=activation",
                              ",fit=plain,order=activation,clip=8", ",damp=0.1", ",fit=plain", ",order=activation"}) {
    matrix.encoded.clear();
    ASSERT_TRUE(pass_of(std::string("gptq:format=") + format + options)->apply(matrix, statistics, pool).ok());
    const double found = output_error(matrix, matrix.encoded, statistics.moments);
    EXPECT_LT(found, 0.8 * plain) << options;
    EXPECT_GT(found, 0) << options;
  }
}

TEST_P(GptqOf, ThreadsChangeNoBit) {
  const auto [format, rows, cols] = GetParam();
  for (const char* options : {"", ",fit=plain", ",fit=plain,clip=4", ",fit=plain,order=activation,clip=4"}) {
    std::vector<std::vector<uint8_t>> found;
    for (int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      const auto statistics = statistics_of(correlated_rows(cols, cols, 41), cols, pool);
      PassMatrix matrix = matrix_of(rows, cols, format, 42);
      ASSERT_TRUE(pass_of(std::string("gptq:format=") + format + options)->apply(matrix, statistics, pool).ok());
      found.push_back(matrix.encoded);
    }
    EXPECT_EQ(found[0], found[1]);
    EXPECT_EQ(found[0], found[2]);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GptqOf,
                         ::testing::Values(GptqCase{"q4_0", 19, 96}, GptqCase{"q8_0", 3, 64}, GptqCase{"q5_1", 9, 64},
                                           GptqCase{"iq4_nl", 8, 32}, GptqCase{"q4_k", 3, 256},
                                           GptqCase{"q2_k", 2, 256}, GptqCase{"q6_k", 2, 256}),
                         [](const auto& one) { return std::string(one.param.format); });

// Prunes by a fixed mask; the levels that are left make up for it.
TEST(Gptq, PrunedWeightsStayZero) {
  ThreadPool pool(2);
  const int64_t rows = 12, cols = 128;
  const auto statistics = statistics_of(correlated_rows(300, cols, 51), cols, pool);
  PassMatrix matrix = matrix_of(rows, cols, "q4_0", 52);
  ASSERT_TRUE(pass_of("wanda:pattern=2:4")->apply(matrix, statistics, pool).ok());
  PassMatrix plain = matrix;
  for (size_t i = 0; i < plain.values.size(); ++i)
    if (!plain.kept[i]) plain.values[i] = 0;
  const auto pruned_only = rounded(plain);
  ASSERT_TRUE(pass_of("gptq")->apply(matrix, statistics, pool).ok());
  const auto values = decoded(matrix, matrix.encoded);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(matrix.kept[i] || values[i] == 0.0f) << i;
  EXPECT_LT(output_error(matrix, matrix.encoded, statistics.moments),
            0.8 * output_error(matrix, pruned_only, statistics.moments));
}

TEST(Gptq, RaisesTheDampingOfFewRows) {
  ThreadPool pool(1);
  const int64_t cols = 64;
  PassMatrix matrix = matrix_of(4, cols, "q4_0", 62);
  auto row = pass_of("gptq:damp=0")->apply(matrix, statistics_of(correlated_rows(5, cols, 61), cols, pool), pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "quantized");
  ASSERT_EQ(row->figures.size(), 1u);
  EXPECT_GT(row->figures[0].second, 0);
}

TEST(Gptq, LeavesWhatItCannotChoose) {
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(50, 32, 71), 32, pool);
  PassMatrix floats = matrix_of(2, 32, "f16", 72);
  auto row = pass_of("gptq")->apply(floats, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "left");
  EXPECT_EQ(row->why, "its format is f16");
  EXPECT_TRUE(floats.encoded.empty());
  PassMatrix matrix = matrix_of(2, 32, "q4_0", 72);
  row = pass_of("gptq")->apply(matrix, statistics_of(std::vector<float>(320), 32, pool), pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "left");
  EXPECT_EQ(row->why, "its inputs are all zero or not finite");
}

TEST(Gptq, RefusesOptions) {
  EXPECT_CONTAINS(make_pass("gptq:format=f16").error().message,
                  "pass gptq: format 'f16': is not a format of levels; choose one of q8_0, q4_0, ");
  EXPECT_EQ(make_pass("gptq:order=random").error().message, "pass gptq: order 'random': must be stored or activation");
  EXPECT_CONTAINS(make_pass("gptq:damp=-1").error().message, "damp");
  EXPECT_EQ(make_pass("gptq:clip=3").error().message,
            "pass gptq: clip: belongs to fit=plain; fit=search chooses the scales itself");
  EXPECT_CONTAINS(make_pass("none").error().message, "pass: unknown 'none'; available: gptq, squeezellm, ");
}

}  // namespace
}  // namespace millrace
