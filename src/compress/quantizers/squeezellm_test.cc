// SqueezeLLM: tables and indices are a fixed point of weighted k-means, rows of few values are kept, the sparse matrix
// is exact where it is, and a compressed model runs.
#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/ordered_json.h"
#include "compress/compress.h"
#include "compress/compress_test.h"
#include "compress/matrix_parts.h"
#include "loader/model_files.h"
#include "model_runner.h"
#include "tensor/half.h"
#include "test_paths.h"

namespace millrace {
namespace {

using namespace testing;

std::vector<float> decoded(const PassMatrix& matrix) {
  std::vector<float> out(matrix.values.size());
  for (int64_t r = 0; r < matrix.rows; ++r) matrix.decode_row(r, out.data() + r * matrix.cols);
  return out;
}

double weighted_error(const std::vector<float>& a, const std::vector<float>& b, const LinearStatistics& statistics) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += std::pow(double{a[i]} - b[i], 2) * statistics.squares[i % statistics.squares.size()];
  return sum;
}

TEST(SqueezeLlm, IsAFixedPointOfWeightedKMeans) {
  ThreadPool pool(3);
  const int64_t rows = 9, cols = 200;
  const auto statistics = statistics_of(correlated_rows(70, cols, 5), cols, pool);
  const double mean = std::accumulate(statistics.squares.begin(), statistics.squares.end(), 0.0) / cols;
  double before = std::numeric_limits<double>::infinity();
  for (int bits : {2, 3, 4}) {
    PassMatrix matrix = matrix_of(rows, cols, "f16", 6);
    auto row = pass_of("squeezellm:bits=" + std::to_string(bits))->apply(matrix, statistics, pool);
    ASSERT_TRUE(row.ok());
    EXPECT_EQ(row->action, "quantized");
    const int64_t size = int64_t{1} << bits;
    ASSERT_EQ(std::ssize(matrix.codebook.entries), rows * size);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<double> weight(static_cast<size_t>(size)), moment(weight);
      for (int64_t c = 0; c < cols; ++c) {
        const float value = matrix.values[static_cast<size_t>(r * cols + c)];
        const uint32_t index =
            codebook_index(matrix.codebook, matrix.encoded.data() + r * matrix.codebook.row_bytes(cols), c);
        const auto entry = [&](int64_t i) {
          return f16_to_f32(matrix.codebook.entries[static_cast<size_t>(r * size + i)]);
        };
        for (int64_t i = 0; i < size; ++i)
          ASSERT_LE(std::fabs(value - entry(index)), std::fabs(value - entry(i))) << r << " " << c;
        const double cost = statistics.squares[static_cast<size_t>(c)] + 1e-4 * mean;
        weight[index] += cost;
        moment[index] += cost * value;
      }
      for (int64_t i = 0; i < size; ++i) {
        const float entry = f16_to_f32(matrix.codebook.entries[static_cast<size_t>(r * size + i)]);
        const auto at = static_cast<size_t>(i);
        // Rounding to f16 may hand a weight over to the next entry.
        if (weight[at] > 0) {
          EXPECT_NEAR(entry, moment[at] / weight[at], 0.02) << r << " " << i;
        }
      }
    }
    const double error = weighted_error(decoded(matrix), matrix.values, statistics);
    EXPECT_LT(error, before / 2) << bits;
    before = error;
  }
  // Against the uniform levels of a block format with more bits a weight.
  PassMatrix rounded = matrix_of(rows, 224, "q4_0", 6);
  rounded.encoded.resize(static_cast<size_t>(rows * rounded.format->row_bytes(224)));
  for (int64_t r = 0; r < rows; ++r)
    rounded.format->encode(rounded.values.data() + r * 224, rounded.encoded.data() + r * rounded.format->row_bytes(224),
                           224);
  LinearStatistics wide = statistics;
  wide.squares.resize(224, mean);
  EXPECT_LT(before, weighted_error(decoded(rounded), rounded.values, wide));
}

TEST(SqueezeLlm, KeepsRowsOfFewValuesAndPrunedWeights) {
  ThreadPool pool(1);
  const int64_t rows = 5, cols = 64;
  const auto statistics = statistics_of(correlated_rows(40, cols, 3), cols, pool);
  PassMatrix matrix = matrix_of(rows, cols, "f16", 6);
  for (size_t i = 0; i < matrix.values.size(); ++i)  // row 0: one value, others: up to 16, which f16 can store
    matrix.values[i] = i < cols ? 0.75f : static_cast<float>(i * 5 % 16) / 8 - 1;
  ASSERT_TRUE(pass_of("squeezellm")->apply(matrix, statistics, pool).ok());
  EXPECT_EQ(decoded(matrix), matrix.values);
  PassMatrix pruned = matrix_of(rows, cols, "f16", 6);
  ASSERT_TRUE(pass_of("wanda:sparsity=0.5")->apply(pruned, statistics, pool).ok());
  ASSERT_TRUE(pass_of("squeezellm:bits=3")->apply(pruned, statistics, pool).ok());
  const auto values = decoded(pruned);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(pruned.kept[i] || values[i] == 0.0f) << i;
}

// Plain rounding with a scale and a zero point for each row: the baseline of the paper.
TEST(SqueezeLlm, EvenTablesCoverTheRange) {
  ThreadPool pool(2);
  const int64_t rows = 9, cols = 200, size = 8;
  const auto statistics = statistics_of(correlated_rows(70, cols, 5), cols, pool);
  PassMatrix even = matrix_of(rows, cols, "f16", 6), chosen = even;
  ASSERT_TRUE(pass_of("squeezellm:bits=3,table=even")->apply(even, statistics, pool).ok());
  ASSERT_TRUE(pass_of("squeezellm:bits=3")->apply(chosen, statistics, pool).ok());
  for (int64_t r = 0; r < rows; ++r) {
    const auto [least, most] =
        std::minmax_element(even.values.begin() + r * cols, even.values.begin() + (r + 1) * cols);
    for (int64_t i = 0; i < size; ++i)
      EXPECT_NEAR(f16_to_f32(even.codebook.entries[static_cast<size_t>(r * size + i)]),
                  *least + (*most - *least) * static_cast<float>(i) / (size - 1), 2e-3);
  }
  EXPECT_LT(weighted_error(decoded(chosen), chosen.values, statistics),
            0.7 * weighted_error(decoded(even), even.values, statistics));
  auto unknown = make_pass("squeezellm:table=odd");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message, "pass squeezellm: table 'odd': must be k_means or even");
}

TEST(SqueezeLlm, ThreadsDoNotChangeABit) {
  std::vector<uint8_t> first;
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto statistics = statistics_of(correlated_rows(40, 96, 3), 96, pool);
    PassMatrix matrix = matrix_of(50, 96, "f16", 8);
    ASSERT_TRUE(pass_of("squeezellm:bits=3,sparse=0.02")->apply(matrix, statistics, pool).ok());
    if (first.empty()) first = matrix.encoded;
    EXPECT_EQ(matrix.encoded, first);
  }
}

// Alone and behind the pass that chooses outliers by size.
TEST(SqueezeLlm, TheSparseMatrixIsExact) {
  ThreadPool pool(2);
  const int64_t rows = 16, cols = 100;
  const auto statistics = statistics_of(correlated_rows(70, cols, 5), cols, pool);
  const PassMatrix original = matrix_of(rows, cols, "f16", 6);
  double dense = 0;
  for (const auto& passes : {std::vector<std::string>{"squeezellm:bits=3"},
                             {"squeezellm:bits=3,sparse=0.05"},
                             {"outliers:part=0.05", "squeezellm:bits=3"}}) {
    PassMatrix matrix = original;
    for (const std::string& pass : passes) {
      auto row = pass_of(pass)->apply(matrix, statistics, pool);
      ASSERT_TRUE(row.ok() && row->action != "left") << pass << ": " << row->why;
    }
    std::vector<float> values = decoded(matrix);
    apply_parts(matrix, values, pool);
    const SparseMatrix& sparse = matrix.parts.sparse;
    EXPECT_EQ(std::ssize(sparse.values), passes.size() == 1 && dense == 0 ? 0 : rows * cols / 20);
    for (int64_t r = 0; !sparse.empty() && r < rows; ++r)
      for (int64_t i = sparse.row_begin[static_cast<size_t>(r)]; i < sparse.row_begin[static_cast<size_t>(r + 1)];
           ++i) {
        const auto at = static_cast<size_t>(r * cols + sparse.columns[static_cast<size_t>(i)]);
        EXPECT_NEAR(values[at], original.values[at], 1e-6);
      }
    const double error = weighted_error(values, original.values, statistics);
    EXPECT_TRUE(dense == 0 || error < 0.9 * dense) << passes.back();
    if (dense == 0) dense = error;
  }
}

TEST(SqueezeLlm, LeavesWhatItCannotStore) {
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(40, 64, 3), 64, pool);
  PassMatrix stack = matrix_of(4, 64, "f16", 8);
  stack.no_parts = "a stack of experts cannot have weight parts";
  auto row = pass_of("squeezellm")->apply(stack, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "left");
  EXPECT_EQ(row->why, "a stack of experts cannot have weight parts");
  EXPECT_FALSE(stack.has_codebook());
  EXPECT_FALSE(make_pass("squeezellm:bits=5").ok());
  auto unknown = make_pass("squeezellm:format=q9");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("format 'q9'"), std::string::npos) << unknown.error().message;
}

// Several windows of 64 tokens.
constexpr const char* kCalibration =
    "A miller kept two stones by the river. The upper one turned, the lower one lay still, and between them the grain "
    "of "
    "nine villages became flour. In spring the water was high and he worked from dawn until 10 at night; in August he "
    "waited, mended sacks (37 of them in 1906), and counted what was owed. \"Flour does not wait,\" his daughter said. "
    "She had learned to read in the town and wrote every delivery into a book: date, weight, price. When the old wheel "
    "broke, the book showed which farms could pay for a new one, and who had always paid late. They built it of oak, "
    "with 24 buckets instead of 18. It ran more quietly than before, and the stones, which had not changed at all, "
    "ground a fifth more each day. Years later nobody remembered the wheel; they remembered the book.\n";

class SqueezeLlmModel : public ::testing::TestWithParam<std::string> {};

TEST_P(SqueezeLlmModel, ACompressedModelRunsNearTheOriginal) {
  const std::string input = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + GetParam();
  const std::string output = (std::filesystem::path(::testing::TempDir()) / ("squeezellm_" + GetParam() + ".gguf"));
  const auto logits = [](const std::string& path) {
    auto runner = TestRunner::load(path, {});
    EXPECT_TRUE(runner.ok()) << runner.error().message;
    return runner.ok() ? (*runner)->logits({5, 17, 40, 3, 99, 21, 64}) : std::vector<float>();
  };
  const auto want = logits(input);
  double before = std::numeric_limits<double>::infinity(), two_bits = before;
  for (const char* pass : {"squeezellm:bits=2", "squeezellm:bits=4", "squeezellm:bits=4,sparse=0.05"}) {
    CompressOptions options;
    options.input = input;
    options.output = output;
    options.passes = {pass};
    options.calibration = {.name = "text", .text = kCalibration, .context = 64, .windows = 8};
    options.threads = 2;
    options.force = true;
    auto done = compress_model(options);
    ASSERT_TRUE(done.ok()) << done.error().message;
    int64_t coded = 0;
    double weighted = 0;
    for (const CompressedMatrix& one : done->matrices) {
      if (!one.format.starts_with("codebook of ")) continue;
      ++coded;
      weighted += one.weighted_error;
    }
    EXPECT_GE(coded, 4);
    EXPECT_LT(weighted, before) << pass;
    before = weighted;
    if (GetParam() == "llama") {  // most of its values are indices, which have no number of their own
      EXPECT_EQ(open_model_files(output)->config->at("general.file_type"), 1024);
    }
    const auto got = logits(output);
    ASSERT_EQ(want.size(), got.size());
    double error = 0;
    for (size_t i = 0; i < want.size(); ++i) error += std::pow(double{got[i]} - want[i], 2);
    EXPECT_GT(error, 0);
    // Another expert for one token changes more than its weights' error.
    EXPECT_LT(error, GetParam() == "qwen2moe" ? two_bits : two_bits / 2) << pass;
    if (two_bits == std::numeric_limits<double>::infinity()) two_bits = error;
  }
  std::error_code ignored;
  std::filesystem::remove(output, ignored);
}

INSTANTIATE_TEST_SUITE_P(Models, SqueezeLlmModel, ::testing::Values("llama", "qwen2_tied", "phi3", "qwen2moe"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace millrace
