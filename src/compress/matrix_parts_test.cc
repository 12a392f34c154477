// Passes that add weight parts: each gives outputs nearer to the original than plain rounding does, as the file's
// matrices with their parts amount to, and as the engine computes them.
#include "compress/matrix_parts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "compress/compress.h"
#include "compress/compress_test.h"
#include "model_runner.h"
#include "shared_data.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using namespace testing;

class TemporaryModel {
 public:
  explicit TemporaryModel(const std::string& name)
      : path_((fs::temp_directory_path() / fmt::format("millrace_{}.{}.gguf", name, ::getpid())).string()) {}
  ~TemporaryModel() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string source_file(const std::string& name) { return std::string(MILLRACE_SOURCE_DIR) + "/" + name; }

std::vector<float> model_logits(const std::string& path, int threads = 1) {
  auto runner = TestRunner::load(path, {.threads = threads});
  EXPECT_TRUE(runner.ok()) << path << ": " << (runner.ok() ? "" : runner.error().message);
  return runner.ok() ? (*runner)->logits({5, 17, 40, 3, 29, 21, 44}) : std::vector<float>();
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

CompressReport compressed(const std::string& input, const std::string& output, std::vector<std::string> passes,
                          int threads = 2) {
  CompressOptions options;
  options.input = input;
  options.output = output;
  options.passes = std::move(passes);
  options.calibration = {
      .name = "README.md", .text = read_file(source_file("models/README.md")), .context = 64, .windows = 8};
  options.threads = threads;
  options.force = true;
  auto done = compress_model(options);
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  return done.ok() ? std::move(*done) : CompressReport();
}

struct Pipeline {
  std::string name;
  std::vector<std::string> passes;
  std::string action;  // of the last pass
};

class PartPasses : public ::testing::TestWithParam<Pipeline> {};

// label(once): compares figures of whole compressions, whose code other cases run too
TEST_P(PartPasses, OutputsOfTheShippedModelAreNearer) {
  const std::string input = source_file("models/millrace-stories-6m.gguf");
  const TemporaryModel output("parts_" + GetParam().name);
  const CompressReport report = compressed(input, output.path(), GetParam().passes);
  ASSERT_EQ(report.matrices.size(), 6u * 7 + 1);
  double error = 0, rounded = 0;
  for (const CompressedMatrix& one : report.matrices) {
    error += one.weighted_error;
    if (one.output_error >= 0) rounded += one.rounded_output_error - one.output_error;
    if (one.name == "token_embd.weight") continue;
    EXPECT_EQ(one.passes.back().second.action, GetParam().action) << one.name << ": " << one.passes.back().second.why;
  }
  EXPECT_GE(rounded, 0);
  EXPECT_GT(error, 0);
  auto files = open_model_files(output.path());
  ASSERT_TRUE(files.ok());
  // The engine computes what the matrices amount to: the logits are nearer to the original's than those of the same
  // levels without parts, and of plain rounding.
  const TemporaryModel plain("plain_" + GetParam().name);
  compressed(input, plain.path(), {"wanda:sparsity=0", "rotate:block=2,format=q4_0"});
  const auto want = model_logits(input);
  EXPECT_LT(distance(model_logits(output.path()), want), distance(model_logits(plain.path()), want));
}

TEST_P(PartPasses, NeitherThreadsNorRunsChangeABit) {
  const std::string input = source_file("tests/golden/llama/model.gguf");
  const TemporaryModel a("one_" + GetParam().name), b("three_" + GetParam().name);
  compressed(input, a.path(), GetParam().passes, 1);
  compressed(input, b.path(), GetParam().passes, 3);
  EXPECT_TRUE(read_file(a.path()) == read_file(b.path()));
  EXPECT_EQ(model_logits(a.path()), model_logits(a.path(), 3));
}

INSTANTIATE_TEST_SUITE_P(
    Passes, PartPasses,
    ::testing::Values(Pipeline{"lqer", {"lqer:rank=32,format=q4_0"}, "corrected"},
                      Pipeline{"lqer_moments", {"lqer:rank=32,format=q4_0,inputs=moments"}, "corrected"},
                      Pipeline{"gptq_lqer", {"gptq:format=q4_0", "lqer:rank=16"}, "corrected"},
                      Pipeline{"outliers", {"outliers:part=0.01", "gptq:format=q4_0"}, "quantized"},
                      Pipeline{"permuted", {"gptq:format=q4_0,order=activation,permute=true"}, "quantized"},
                      Pipeline{"rotate_lqer", {"outliers:part=0.01", "rotate:block=32", "lqer:rank=32"}, "corrected"}),
    [](const auto& one) { return one.param.name; });

// The best pair of full rank leaves nothing, and a pair of less rank leaves the rest of the largest parts.
TEST(Lqer, TakesTheLargestParts) {
  ThreadPool pool(2);
  const int64_t rows = 24, cols = 32;
  const LinearStatistics statistics = statistics_of(correlated_rows(200, cols, 5), cols, pool);
  std::vector<double> left;
  for (const char* text :
       {"lqer:rank=1", "lqer:rank=4", "lqer:rank=12", "lqer:rank=24", "lqer:rank=24,inputs=moments"}) {
    PassMatrix matrix = matrix_of(rows, cols, "q4_0", 7);
    const std::vector<float> original = matrix.values;
    auto row = pass_of(text)->apply(matrix, statistics, pool);
    ASSERT_TRUE(row.ok());
    EXPECT_EQ(row->action, "corrected");
    std::vector<float> values(original.size());
    matrix.format->decode(matrix.encoded.data(), values.data(), std::ssize(values));
    apply_parts(matrix, values, pool);
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i)
      sum += statistics.squares[i % cols] * std::pow(double{values[i]} - original[i], 2);
    left.push_back(sum);
  }
  EXPECT_LT(left[1], 0.85 * left[0]);
  EXPECT_LT(left[2], 0.6 * left[1]);
  EXPECT_LT(left[3], 1e-5 * left[0]);
  EXPECT_LT(left[4], 1e-5 * left[0]);
}

// A plain search: no single outlier that was left in is larger than one that was taken.
TEST(Outliers, AreTheLargestWeights) {
  ThreadPool pool(1);
  PassMatrix matrix = matrix_of(10, 64, "q4_0", 3);
  const std::vector<float> original = matrix.values;
  auto row = pass_of("outliers:part=0.1")->apply(matrix, {}, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "split");
  const SparseMatrix& sparse = matrix.parts.sparse;
  ASSERT_EQ(sparse.values.size(), 64u);
  EXPECT_EQ(sparse.row_begin.size(), 11u);
  float smallest = 1e9f, largest = 0;
  for (float value : sparse.values) smallest = std::min(smallest, std::fabs(value));
  for (float value : matrix.values) largest = std::max(largest, std::fabs(value));
  EXPECT_GE(smallest, largest);
  std::vector<float> values = matrix.values;
  apply_parts(matrix, values, pool);
  EXPECT_EQ(values, original);
}

// Wanda prunes large weights, too, where inputs are small.
TEST(Outliers, PrunedWeightsStayPruned) {
  ThreadPool pool(1);
  PassMatrix matrix = matrix_of(10, 64, "q4_0", 3);
  matrix.kept.assign(matrix.values.size(), 1);
  for (size_t i = 0; i < matrix.values.size(); ++i) matrix.kept[i] = std::fabs(matrix.values[i]) < 0.5f;
  const std::vector<float> original = matrix.values;
  ASSERT_TRUE(pass_of("outliers:part=0.1")->apply(matrix, {}, pool).ok());
  std::vector<float> values = matrix.values;
  apply_parts(matrix, values, pool);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], matrix.kept[i] ? original[i] : 0.0f) << i;
}

TEST(MatrixParts, StoreRowAndApplyTurnBack) {
  ThreadPool pool(1);
  PassMatrix matrix = matrix_of(3, 32, "f32", 9);
  const std::vector<float> original = matrix.values;
  for (int c = 0; c < 32; ++c) {
    matrix.parts.input.scale.push_back(0.5f + static_cast<float>(c));
    matrix.parts.input.order.push_back(c * 5 % 32);
  }
  matrix.parts.input.hadamard = 16;
  std::vector<float> scratch;
  for (int64_t r = 0; r < 3; ++r) store_row(matrix.parts.input, matrix.values.data() + r * 32, 32, scratch);
  EXPECT_NE(matrix.values, original);
  apply_parts(matrix, matrix.values, pool);
  for (size_t i = 0; i < original.size(); ++i) EXPECT_NEAR(matrix.values[i], original[i], 1e-4);
}

TEST(PartPasses, SayWhatIsWrong) {
  const auto failure = [](const std::string& text) {
    auto made = make_pass(text);
    return made.ok() ? std::string("made") : made.error().message;
  };
  EXPECT_EQ(failure("lqer:inputs=size"), "pass lqer: inputs 'size': must be norms or moments");
  EXPECT_EQ(failure("lqer:format=q9"),
            "pass lqer: format 'q9': must be a format that GGUF files can have, such as q4_0");
  EXPECT_EQ(failure("rotate:block=48"), "pass rotate: block 48: must be a power of two");
  EXPECT_EQ(failure("rotate:format=q9"),
            "pass rotate: format 'q9': must be a format that GGUF files can have, such as q4_0");
  EXPECT_EQ(failure("gptq:permute=true"),
            "pass gptq: permute: columns are stored in another order only with order=activation");
  ThreadPool pool(1);
  PassMatrix stacked = matrix_of(4, 32, "q4_0", 3);
  stacked.no_parts = "a stack of experts cannot have weight parts";
  for (const char* text : {"lqer", "outliers", "rotate"}) {
    auto row = pass_of(text)->apply(stacked, {}, pool);
    ASSERT_TRUE(row.ok());
    EXPECT_EQ(row->action, "left");
    EXPECT_EQ(row->why, "a stack of experts cannot have weight parts");
  }
  EXPECT_TRUE(stacked.parts.empty());
}

}  // namespace
}  // namespace millrace
