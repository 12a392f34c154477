// Factorizers: the best pair against Eckart and Young and against random search,
// the order of members on inputs that are correlated, and whole models that run from pairs alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "compress/compress.h"
#include "compress/compress_test.h"
#include "compress/factorizers/low_rank.h"
#include "compress/matrix_parts.h"
#include "model_runner.h"
#include "models/weight_parts_loader.h"
#include "shared_data.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using Doubles = std::vector<double>;

// The matrix that a factored one amounts to.
std::vector<float> product_of(const PassMatrix& matrix, ThreadPool& pool) {
  std::vector<float> out(matrix.values.size());
  apply_parts(matrix, out, pool);
  return out;
}

// Sum over the rows x of |(W - W') x + bias|^2.
double output_error(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& x, int64_t cols,
                    const std::vector<float>& bias = {}) {
  const int64_t rows = std::ssize(a) / cols;
  double sum = 0;
  for (int64_t t = 0; t < std::ssize(x) / cols; ++t)
    for (int64_t r = 0; r < rows; ++r) {
      double y = bias.empty() ? 0 : bias[static_cast<size_t>(r)];
      for (int64_t c = 0; c < cols; ++c)
        y += (double{a[static_cast<size_t>(r * cols + c)]} - b[static_cast<size_t>(r * cols + c)]) *
             x[static_cast<size_t>(t * cols + c)];
      sum += y * y;
    }
  return sum;
}

LinearStatistics all_statistics(const std::vector<float>& x, int64_t cols, ThreadPool& pool) {
  LinearStatistics out = statistics_of(x, cols, pool);
  out.sums.resize(static_cast<size_t>(cols));
  out.magnitudes.resize(static_cast<size_t>(cols));
  for (size_t i = 0; i < x.size(); ++i) {
    out.sums[i % out.sums.size()] += x[i];
    out.magnitudes[i % out.sums.size()] += std::fabs(x[i]);
  }
  return out;
}

struct Factored {
  PassMatrix matrix;
  std::vector<float> original, product;
  double dropped = 0;
};

Factored factor(const std::string& pass, int64_t rows, int64_t cols, const LinearStatistics& statistics,
                ThreadPool& pool) {
  Factored out{matrix_of(rows, cols, "f32", 11), {}, {}};
  out.original = out.matrix.values;
  auto row = pass_of(pass)->apply(out.matrix, statistics, pool);
  EXPECT_TRUE(row.ok()) << pass;
  EXPECT_EQ(row->action, "factored") << pass << ": " << row->why;
  for (const auto& [name, value] : row->figures)
    if (name == "dropped") out.dropped = value;
  out.product = product_of(out.matrix, pool);
  return out;
}

// values * (rows + cols) / (rows * cols)
std::string ratio_of_rank(int64_t rank, int64_t rows, int64_t cols) {
  return fmt::format("{:.9f}", (static_cast<double>(rank) + 0.01) * static_cast<double>(rows + cols) /
                                   static_cast<double>(rows * cols));
}

struct Shape {
  int64_t rows, cols;
};

class Pairs : public ::testing::TestWithParam<Shape> {
 protected:
  const int64_t rows_ = GetParam().rows, cols_ = GetParam().cols;
  ThreadPool pool_{2};
  const std::vector<float> x_ = correlated_rows(300, cols_, 5);
  const LinearStatistics statistics_ = all_statistics(x_, cols_, pool_);

  Factored at_rank(const std::string& name, int64_t rank, const std::string& more = "") {
    return factor(fmt::format("{}:format=f32,ratio={}{}", name, ratio_of_rank(rank, rows_, cols_), more), rows_, cols_,
                  statistics_, pool_);
  }
};

// The paper of SVD-LLM: the loss of a truncation is the sum of the squares of the singular values that it drops.
TEST_P(Pairs, TruncatedLossIsWhatWasDropped) {
  const std::vector<float> zero(static_cast<size_t>(rows_ * cols_));
  for (int64_t rank : {1, 3, 9, 14}) {
    const Factored done = at_rank("svd_llm", rank);
    ASSERT_EQ(done.matrix.parts.rank, rank);
    const double all = output_error(done.original, zero, x_, cols_);
    const double lost = output_error(done.original, done.product, x_, cols_);
    EXPECT_NEAR(lost, done.dropped * all, 1e-4 * lost + 1e-6 * all) << rank;
  }
}

// No pair found otherwise is better: the truncations in other norms, random ones with their best A, small changes.
TEST_P(Pairs, NoOtherPairOfTheRankIsNearer) {
  const int64_t rank = 5;
  const Factored best = at_rank("svd_llm", rank);
  const double least = output_error(best.original, best.product, x_, cols_);
  for (const char* other : {"svd", "asvd", "lplr", "losparse"}) {
    const Factored done = at_rank(other, rank, std::string(other) == "losparse" ? ",columns=0" : "");
    EXPECT_GT(output_error(done.original, done.product, x_, cols_), least) << other;
  }
  for (uint32_t seed = 0; seed < 20; ++seed) {
    PassMatrix near = best.matrix;
    const std::vector<float> a = normal_values(std::ssize(near.parts.low_rank_a), seed + 100);
    const std::vector<float> b = normal_values(std::ssize(near.parts.low_rank_b), seed + 200);
    for (size_t i = 0; i < a.size(); ++i) near.parts.low_rank_a[i] += 0.01f * a[i];
    for (size_t i = 0; i < b.size(); ++i) near.parts.low_rank_b[i] += 0.01f * b[i];
    EXPECT_GT(output_error(best.original, product_of(near, pool_), x_, cols_), least) << seed;
  }
}

// Plain truncation is the nearest in the plain norm, and its loss is what it dropped.
TEST_P(Pairs, PlainTruncationIsNearestToTheWeights) {
  const auto weight_distance = [](const Factored& done) {
    double sum = 0, all = 0;
    for (size_t i = 0; i < done.product.size(); ++i) {
      sum += std::pow(double{done.product[i]} - done.original[i], 2);
      all += std::pow(double{done.original[i]}, 2);
    }
    return sum / all;
  };
  const Factored plain = at_rank("svd", 6);
  EXPECT_NEAR(weight_distance(plain), plain.dropped, 1e-5);
  for (const char* other : {"svd_llm", "asvd", "lplr"})
    EXPECT_GT(weight_distance(at_rank(other, 6)), weight_distance(plain)) << other;
  // Steps of the power iteration bring the sketch near to it.
  const double sketched = weight_distance(at_rank("lplr", 6)),
               powered = weight_distance(at_rank("lplr", 6, ",power=8"));
  EXPECT_LT(powered, sketched);
  EXPECT_LT(powered, 1.03 * weight_distance(plain));
}

TEST_P(Pairs, FullRankIsExact) {
  for (const char* name : {"svd", "asvd", "svd_llm", "lord", "lplr", "losparse"}) {
    const Factored done = at_rank(name, std::min(rows_, cols_));
    for (size_t i = 0; i < done.product.size(); ++i)
      ASSERT_NEAR(done.product[i], done.original[i], 1e-4) << name << " " << i;
  }
}

// On other inputs of the same kind.
TEST_P(Pairs, WhatIsKnownOfTheInputsHelps) {
  const std::vector<float> held_out = correlated_rows(200, cols_, 77);
  const auto error = [&](const char* name) {
    const Factored done = at_rank(name, 8);
    return output_error(done.original, done.product, held_out, cols_);
  };
  const double whitened = error("svd_llm"), scaled = error("asvd"), plain = error("svd");
  EXPECT_LT(whitened, scaled);
  EXPECT_LT(scaled, plain);
}

// Inputs with a mean: a bias takes care of it, and the pair of the rest.
TEST_P(Pairs, LordsBiasKeepsTheMean) {
  std::vector<float> x = x_;
  for (size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(3 + i % static_cast<size_t>(cols_) % 5);
  const LinearStatistics statistics = all_statistics(x, cols_, pool_);
  const std::string ratio = ratio_of_rank(4, rows_, cols_);
  const Factored lord = factor("lord:format=f32,ratio=" + ratio, rows_, cols_, statistics, pool_);
  const Factored other = factor("svd_llm:format=f32,ratio=" + ratio, rows_, cols_, statistics, pool_);
  ASSERT_EQ(std::ssize(lord.matrix.parts.bias), rows_);
  std::vector<float> mean;
  for (double sum : statistics.sums) mean.push_back(static_cast<float>(sum / 300));
  std::vector<float> back = lord.matrix.parts.bias;
  for (float& one : back) one = -one;  // W x - (W' x + bias)
  EXPECT_LT(output_error(lord.original, lord.product, mean, cols_, back),
            1e-6 * output_error(lord.original, lord.product, mean, cols_));
  EXPECT_LT(output_error(lord.original, lord.product, x, cols_, back),
            output_error(other.original, other.product, x, cols_));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Pairs, ::testing::Values(Shape{24, 40}, Shape{48, 20}, Shape{32, 32}),
                         [](const auto& one) { return fmt::format("{}x{}", one.param.rows, one.param.cols); });

// B is rounded first; then no other A is better for it.
TEST(Factorizers, InnerFactorFitsTheRoundedOne) {
  ThreadPool pool(2);
  const int64_t rows = 96, cols = 64;
  const LinearStatistics statistics = all_statistics(correlated_rows(200, cols, 5), cols, pool);
  const Factored done = factor("lplr:format=q4_0,ratio=0.9", rows, cols, statistics, pool);
  ASSERT_EQ(done.matrix.parts.rank, 32);
  Doubles b(done.matrix.parts.low_rank_b.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < 32; ++k)
      b[static_cast<size_t>(k * rows + r)] = done.matrix.parts.low_rank_b[static_cast<size_t>(r * 32 + k)];
  PassMatrix original = done.matrix;
  original.values = done.original;
  const Doubles a = solve_inner(original, b, 32, pool);
  ASSERT_EQ(std::ssize(a), 32 * cols);
  for (int64_t k = 0; k < 32; ++k)
    for (int64_t c = 0; c < cols; ++c) {  // B^T (W - B A) = 0
      double along = 0, size = 0;
      for (int64_t r = 0; r < rows; ++r) {
        double left = done.original[static_cast<size_t>(r * cols + c)];
        for (int64_t j = 0; j < 32; ++j)
          left -= b[static_cast<size_t>(j * rows + r)] * a[static_cast<size_t>(j * cols + c)];
        along += b[static_cast<size_t>(k * rows + r)] * left;
        size += std::fabs(b[static_cast<size_t>(k * rows + r)] * left);
      }
      ASSERT_NEAR(along, 0, 1e-9 * size + 1e-12);
    }
}

TEST(Factorizers, LoSparseKeepsTheColumnsThatMatterMost) {
  ThreadPool pool(2);
  const int64_t rows = 24, cols = 40;
  const LinearStatistics statistics = all_statistics(correlated_rows(200, cols, 5), cols, pool);
  const Factored done = factor("losparse:format=f32,ratio=0.3,columns=0.1", rows, cols, statistics, pool);
  const SparseMatrix& sparse = done.matrix.parts.sparse;
  ASSERT_EQ(std::ssize(sparse.values), rows * 4);
  // Kept columns are exact, and worth more than any other.
  Doubles left(static_cast<size_t>(cols));
  for (size_t i = 0; i < done.original.size(); ++i) {
    const double difference = double{done.original[i]} - done.product[i];
    left[i % static_cast<size_t>(cols)] += difference * difference * statistics.squares[i % static_cast<size_t>(cols)];
  }
  PassMatrix pair = done.matrix;
  pair.parts.sparse = {};
  const std::vector<float> without = product_of(pair, pool);
  double least = 1e300;
  for (int i = 0; i < 4; ++i) {
    const auto c = static_cast<size_t>(sparse.columns[static_cast<size_t>(i)]);
    EXPECT_LT(left[c], 1e-6);
    double worth = 0;
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      const size_t at = r * static_cast<size_t>(cols) + c;
      worth += std::pow(double{done.original[at]} - without[at], 2) * statistics.squares[c];
    }
    least = std::min(least, worth);
  }
  for (double other : left) EXPECT_LE(other, least);
}

// The rank follows from the part that may be dropped.
TEST(Factorizers, LossChoosesTheRank) {
  ThreadPool pool(2);
  const int64_t rows = 64, cols = 96;
  const LinearStatistics statistics = all_statistics(correlated_rows(300, cols, 5), cols, pool);
  int64_t before = 1000;
  for (const char* loss : {"0.02", "0.1", "0.3"}) {
    const Factored done = factor(fmt::format("svd_llm:format=f16,loss={}", loss), rows, cols, statistics, pool);
    EXPECT_LE(done.dropped, std::stod(loss));
    const Factored smaller = factor("svd_llm:format=f16,ratio=" + ratio_of_rank(done.matrix.parts.rank - 1, rows, cols),
                                    rows, cols, statistics, pool);
    EXPECT_GT(smaller.dropped, std::stod(loss));
    EXPECT_LT(done.matrix.parts.rank, before);
    before = done.matrix.parts.rank;
  }
  PassMatrix matrix = matrix_of(rows, cols, "q4_0", 11);
  auto row = pass_of("svd:loss=0.001")->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "left");
  EXPECT_EQ(row->why, "a pair in q8_0 that loses 0.001 takes rank 64, which is no smaller than the matrix in q4_0");
  EXPECT_TRUE(matrix.parts.empty());
}

std::string factor_source(const std::string& name) { return std::string(MILLRACE_SOURCE_DIR) + "/" + name; }

class FactorOutput {
 public:
  explicit FactorOutput(const std::string& name)
      : path_((fs::temp_directory_path() / fmt::format("millrace_{}.{}.gguf", name, ::getpid())).string()) {}
  ~FactorOutput() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

CompressReport compress_with(const std::string& input, const std::string& output, const std::string& pass,
                             int threads = 2) {
  CompressOptions options;
  options.input = input;
  options.output = output;
  options.passes = {pass};
  options.calibration = {
      .name = "README.md", .text = read_file(factor_source("models/README.md")), .context = 64, .windows = 8};
  options.threads = threads;
  options.force = true;
  auto done = compress_model(options);
  EXPECT_TRUE(done.ok()) << pass << ": " << (done.ok() ? "" : done.error().message);
  return done.ok() ? std::move(*done) : CompressReport();
}

std::vector<float> logits_of_model(const std::string& path, int threads = 1, int64_t chunk = 0) {
  auto runner = TestRunner::load(path, {.threads = threads});
  EXPECT_TRUE(runner.ok()) << path << ": " << (runner.ok() ? "" : runner.error().message);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 70; ++i) tokens.push_back(1 + i * 7 % 40);  // more than the rows that pairs process together
  return runner.ok() ? (*runner)->logits(tokens, chunk) : std::vector<float>();
}

double length_between(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

class FactoredModels : public ::testing::TestWithParam<std::string> {};

// Of full rank, the model is the original's; threads and chunks change no bit, and the file is the same for any.
TEST_P(FactoredModels, RunFromPairsAlone) {
  for (const char* name : {"llama", "qwen2", "phi3", "qwen2moe"}) {
    const std::string input = factor_source(fmt::format("tests/golden/{}/model.gguf", name));
    const FactorOutput a("factored_a"), b("factored_b");
    const CompressReport report = compress_with(input, a.path(), GetParam() + ":format=f32,ratio=2", 1);
    compress_with(input, b.path(), GetParam() + ":format=f32,ratio=2", 3);
    EXPECT_TRUE(read_file(a.path()) == read_file(b.path())) << name;
    auto files = open_model_files(a.path());
    ASSERT_TRUE(files.ok());
    int64_t factored = 0;
    for (const CompressedMatrix& one : report.matrices) {
      if (one.passes.at(0).second.action != "factored") continue;
      ++factored;
      EXPECT_FALSE(files->find(one.name)) << one.name;
      EXPECT_TRUE(find_factored(*files, one.name)) << one.name;
    }
    EXPECT_GE(factored, 8) << name;
    const std::vector<float> want = logits_of_model(input), got = logits_of_model(a.path());
    ASSERT_EQ(want.size(), got.size());
    EXPECT_LT(length_between(got, want), 2e-3 * length_between(want, std::vector<float>(want.size()))) << name;
    EXPECT_TRUE(logits_of_model(a.path(), 3, 9) == got) << name;
    EXPECT_TRUE(logits_of_model(a.path(), 2, 1) == got) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Members, FactoredModels, ::testing::Values("svd", "svd_llm", "lord"),
                         [](const auto& one) { return one.param; });

// label(once): compares figures of whole compressions, whose code other cases run too
TEST(FactoredModel, TheShippedModelsBytesAndErrorsFall) {
  const std::string input = factor_source("models/millrace-stories-6m.gguf");
  const FactorOutput whitened("whitened"), plain("plain");
  const CompressReport report = compress_with(input, whitened.path(), "svd_llm:ratio=0.6");
  compress_with(input, plain.path(), "svd:ratio=0.6");
  const std::vector<float> want = logits_of_model(input);
  EXPECT_LT(length_between(logits_of_model(whitened.path()), want),
            length_between(logits_of_model(plain.path()), want));
  EXPECT_LT(report.output_bytes, report.input_bytes * 7 / 10);
  for (const CompressedMatrix& one : report.matrices) {
    if (one.name == "token_embd.weight") {
      EXPECT_EQ(one.passes.at(0).second.action, "left");
      continue;
    }
    EXPECT_EQ(one.format, "q8_0 pair");
    EXPECT_GT(one.output_error, 0) << one.name;
    EXPECT_LT(one.output_error, 0.5) << one.name;
  }
  auto files = open_model_files(whitened.path());
  ASSERT_TRUE(files.ok());
  EXPECT_LT(count_parameters(*files), count_parameters(*open_model_files(input)) * 8 / 10);
  EXPECT_TRUE(logits_of_model(whitened.path(), 3, 9) == logits_of_model(whitened.path()));
}

TEST(Factorizers, SayWhatIsWrong) {
  const auto failure = [](const std::string& text) {
    auto made = make_pass(text);
    return made.ok() ? std::string("made") : made.error().message;
  };
  EXPECT_EQ(failure("svd:format=q9"), "pass svd: format 'q9': must be a format that GGUF files can have, such as q8_0");
  EXPECT_EQ(failure("asvd:format=q4_k"),
            "pass asvd: format 'q4_k': has blocks of 256 values, and ranks are multiples of them; at most 32, as q8_0, "
            "q4_0 and f16 have");
  EXPECT_EQ(failure("svd_llm:rest=q9"),
            "pass svd_llm: rest 'q9': must be a format that GGUF files can have, such as q8_0");
  EXPECT_EQ(failure("svd:ratio=0.5,loss=0.1"),
            "pass svd: ratio and loss: give one of them; with loss the ratio follows from the matrix");
  EXPECT_EQ(failure("lplr:loss=0.1"),
            "pass lplr: loss: a sketch has no singular values to choose a rank by; give a ratio");
  ThreadPool pool(1);
  PassMatrix stacked = matrix_of(4, 32, "q4_0", 3), head = stacked, narrow = matrix_of(4, 40, "f32", 3);
  stacked.no_parts = "a stack of experts cannot have weight parts";
  head.id = {};
  const auto why = [&](PassMatrix& matrix) { return pass_of("svd")->apply(matrix, {}, pool)->why; };
  EXPECT_EQ(why(stacked), "a stack of experts cannot have weight parts");
  EXPECT_EQ(why(head), "only the layers' matrices are factored");
  EXPECT_EQ(why(narrow), "40 columns are not whole blocks of q8_0");
}

}  // namespace
}  // namespace millrace
