// DSFormer: the two factors against plain definitions, and models with them against the same models with the products
// as ordinary matrices.
#include <algorithm>

#include "compress/compress_test.h"
#include "compress/factorizers/dense_sparse.h"
#include "contains.h"
#include "model_logits.h"
#include "short_compression.h"
#include "weight_parts_file.h"

namespace millrace {
namespace {

using namespace testing;

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double change = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    change += std::pow(double{a[i]} - b[i], 2);
    all += std::pow(double{b[i]}, 2);
  }
  return change / all;
}

std::vector<float> product_of(const std::vector<double>& atoms, const SparseMatrix& sparse, int64_t rows,
                              int64_t cols) {
  std::vector<float> out(static_cast<size_t>(rows * cols));
  for (size_t k = 0; k + 1 < sparse.row_begin.size(); ++k)
    for (auto i = static_cast<size_t>(sparse.row_begin[k]); i < static_cast<size_t>(sparse.row_begin[k + 1]); ++i)
      for (int64_t r = 0; r < rows; ++r)
        out[static_cast<size_t>(r * cols + sparse.columns[i])] +=
            static_cast<float>(atoms[k * static_cast<size_t>(rows) + static_cast<size_t>(r)] * sparse.values[i]);
  return out;
}

// Columns that each are a combination of two of twelve atoms, and their matrix's rank is full.
PassMatrix planted_matrix() {
  constexpr int64_t kRows = 12, kCols = 160;
  PassMatrix out = matrix_of(kRows, kCols, "f32", 3);
  const std::vector<float> atoms = normal_values(kRows * kRows, 4), values = normal_values(2 * kCols, 5);
  for (int64_t c = 0; c < kCols; ++c)
    for (int64_t r = 0; r < kRows; ++r)
      out.values[static_cast<size_t>(r * kCols + c)] =
          values[static_cast<size_t>(2 * c)] * atoms[static_cast<size_t>(c % kRows * kRows + r)] +
          values[static_cast<size_t>(2 * c + 1)] * atoms[static_cast<size_t>((c * 5 + c / kRows) % kRows * kRows + r)];
  return out;
}

TEST(DenseSparse, SaysWhatIsLost) {
  const int64_t rows = 20, cols = 50;
  const PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
  const std::vector<float> first = normal_values(rows * 10, 7);
  double last = 1;
  for (const int64_t nonzeros : {1, 2, 5, 10}) {
    std::vector<std::vector<double>> found;
    for (int threads : {1, 3}) {
      ThreadPool pool(threads);
      DenseSparse factors(matrix.values, std::vector<double>(static_cast<size_t>(cols), 2),
                          {first.begin(), first.end()}, nonzeros, pool);
      factors.code();
      const double before = factors.error();
      for (int i = 0; i < 5; ++i) {
        factors.update();
        factors.code();
      }
      EXPECT_LT(factors.error(), before);
      EXPECT_LT(factors.error(), last);
      const SparseMatrix sparse = factors.sparse();
      EXPECT_EQ(std::ssize(sparse.values), cols * nonzeros);
      EXPECT_NEAR(relative_error(product_of(factors.atoms(), sparse, rows, cols), matrix.values), factors.error(),
                  1e-6);
      found.push_back(factors.atoms());
    }
    EXPECT_EQ(found[0], found[1]);
    ThreadPool pool(1);
    DenseSparse factors(matrix.values, std::vector<double>(static_cast<size_t>(cols), 2), found[0], nonzeros, pool);
    factors.code();
    last = factors.error();
  }
}

// With every atom in every column nothing is sparse, and the columns' projections on the atoms are lost by nothing.
TEST(DenseSparse, AllAtomsAreLeastSquares) {
  const int64_t rows = 12, cols = 30;
  ThreadPool pool(1);
  const PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
  std::vector<double> identity(static_cast<size_t>(rows * rows));
  for (int64_t i = 0; i < rows; ++i) identity[static_cast<size_t>(i * rows + i)] = 3;
  DenseSparse factors(matrix.values, std::vector<double>(static_cast<size_t>(cols), 1), identity, rows, pool);
  factors.code();
  EXPECT_LT(factors.error(), 1e-12);
  // The largest values of a column are chosen first.
  DenseSparse two(matrix.values, std::vector<double>(static_cast<size_t>(cols), 1), identity, 2, pool);
  two.code();
  double lost = 0, all = 0;
  for (int64_t c = 0; c < cols; ++c) {
    std::vector<double> squares;
    for (int64_t r = 0; r < rows; ++r)
      squares.push_back(std::pow(double{matrix.values[static_cast<size_t>(r * cols + c)]}, 2));
    std::ranges::sort(squares);
    for (size_t i = 0; i < squares.size(); ++i) (i + 2 < squares.size() ? lost : all) += squares[i];
  }
  EXPECT_NEAR(two.error(), lost / (lost + all), 1e-9);
}

// Where columns have subspaces of their own, no pair of as many values comes near.
TEST(Dsformer, FindsSubspacesThatOnePairHasNot) {
  ThreadPool pool(2);
  const auto statistics = statistics_of(normal_values(200 * 160, 9), 160, pool);
  const auto loss = [&](const std::string& pass) {
    PassMatrix matrix = planted_matrix();
    auto row = pass_of(pass)->apply(matrix, statistics, pool);
    EXPECT_TRUE(row.ok());
    EXPECT_EQ(row->action, "factored") << row->why;
    std::vector<float> whole(matrix.values.size());
    apply_parts(matrix, whole, pool);
    return relative_error(whole, planted_matrix().values);
  };
  // 12 x 12 + 2 x 160 values and as many columns' numbers; 3 x (12 + 160) values.
  const double dense_sparse = loss("dsformer:atoms=1,nonzeros=2,iterations=40,format=f32");
  EXPECT_LT(dense_sparse, 0.5 * loss("svd:ratio=0.27,format=f32"));
}

TEST(Dsformer, StoresWhatItSays) {
  ThreadPool pool(2);
  const auto statistics = statistics_of(correlated_rows(200, 64, 5), 64, pool);
  PassMatrix matrix = matrix_of(48, 64, "f32", 6), plain = matrix;
  auto row = pass_of("dsformer:atoms=0.7,nonzeros=8,format=q8_0")->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok());
  ASSERT_EQ(row->action, "factored") << row->why;
  EXPECT_EQ(matrix.parts.rank, 32);
  EXPECT_EQ(matrix.parts.sparse.row_begin.size(), 33u);
  std::vector<int> values(64);
  for (int32_t column : matrix.parts.sparse.columns) ++values[static_cast<size_t>(column)];
  for (int count : values) EXPECT_LE(count, 8);
  std::vector<float> whole(matrix.values.size());
  apply_parts(matrix, whole, pool);
  double change = 0, all = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    change += statistics.squares[i % 64] * std::pow(double{whole[i]} - plain.values[i], 2);
    all += statistics.squares[i % 64] * std::pow(double{plain.values[i]}, 2);
  }
  EXPECT_NEAR(row->figures.at(2).second, change / all, 1e-5);
}

// Every matrix of the layers; biases beside them; with any threads and any chunks.
TEST(Dsformer, ModelsMultiplyTheFactors) {
  for (const std::string model : {"llama", "qwen2"}) {
    const ScratchModel out, again;
    CompressOptions options =
        short_compression(golden_gguf(model), out.path(), "dsformer:atoms=0.5,nonzeros=4,format=f32");
    auto done = compress_model(options);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_LT(done->output_bytes, done->input_bytes);
    options.output = again.path();
    options.threads = 3;
    ASSERT_TRUE(compress_model(options).ok());
    EXPECT_TRUE(read_file(out.path()) == read_file(again.path()));
    auto before = open_model_files(golden_gguf(model)), after = open_model_files(out.path());
    ASSERT_TRUE(before.ok() && after.ok());
    PartTensors plain;
    for (const StoredTensor& stored : after->tensors) {
      if (!stored.name.ends_with(".low_rank_b")) continue;
      const std::string prefix = stored.name.substr(0, stored.name.size() - std::string(".low_rank_b").size());
      const Tensor& whole = before->find(prefix + ".weight")->tensor;
      const std::vector<float> dense = floats_of(*after, stored.name),
                               counts = floats_of(*after, prefix + ".inner_counts"),
                               columns = floats_of(*after, prefix + ".inner_columns"),
                               values = floats_of(*after, prefix + ".inner_values");
      auto& to = plain[prefix + ".weight"];
      to.dims = {whole.rows(), whole.cols()};
      to.values.resize(static_cast<size_t>(whole.values()));
      size_t next = 0;
      for (size_t k = 0; k < counts.size(); ++k)
        for (size_t end = next + static_cast<size_t>(counts[k]); next < end; ++next)
          for (int64_t r = 0; r < whole.rows(); ++r)
            to.values[static_cast<size_t>(r * whole.cols()) + static_cast<size_t>(columns[next])] +=
                dense[static_cast<size_t>(r) * counts.size() + k] * values[next];
      ASSERT_EQ(next, values.size());
    }
    EXPECT_GE(plain.size(), 7u);
    const PartedModel same(golden_gguf(model), plain);
    const std::vector<float> want = logits_of(same.path()), found = logits_of(out.path());
    ASSERT_EQ(want.size(), found.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(found[i], want[i], 1e-3) << model;
    EXPECT_NE(found, logits_of(golden_gguf(model)));
    EXPECT_EQ(found, logits_of(out.path(), 3));
    EXPECT_EQ(found, logits_of(out.path(), 2, 3));
  }
}

TEST(Dsformer, DamagedFactorsAreRefused) {
  const std::string q = "blk.0.attn_q";
  auto files = open_model_files(golden_gguf("llama"));
  ASSERT_TRUE(files.ok());
  const int64_t rows = files->find(q + ".weight")->tensor.rows(), cols = files->find(q + ".weight")->tensor.cols();
  const auto failure = [&](const auto& edit) {
    PartTensors parts;
    parts[q + ".weight"] = {};
    parts[q + ".low_rank_b"] = {{rows, 2}, part_values("b", rows * 2, 1)};
    parts[q + ".inner_counts"] = {{2}, {2, 1}};
    parts[q + ".inner_columns"] = {{3}, {0, 5, 3}};
    parts[q + ".inner_values"] = {{3}, {1, 2, 3}};
    edit(parts);
    const PartedModel model(golden_gguf("llama"), parts);
    auto runner = TestRunner::load(model.path(), {});
    return runner.ok() ? "" : runner.error().message;
  };
  EXPECT_EQ(failure([](PartTensors&) {}), "");
  EXPECT_CONTAINS(failure([&](PartTensors& p) { p[q + ".inner_columns"].values[1] = static_cast<float>(cols); }),
                  "inner_columns");
  EXPECT_CONTAINS(failure([&](PartTensors& p) { p[q + ".inner_columns"].values[0] = 5; }), ".inner_columns at offset");
  EXPECT_CONTAINS(failure([&](PartTensors& p) { p[q + ".inner_counts"].values[0] = 3; }), "must have 4");
  EXPECT_CONTAINS(failure([&](PartTensors& p) { p[q + ".inner_values"].values[0] = NAN; }), "holds NaN or infinity");
  EXPECT_CONTAINS(failure([&](PartTensors& p) { p.erase(q + ".inner_values"); }), ".inner_values is missing");
  EXPECT_CONTAINS(failure([&](PartTensors& p) { p.erase(q + ".inner_counts"); }), ".low_rank_a is missing");
  EXPECT_CONTAINS(failure([&](PartTensors& p) { p[q + ".low_rank_b"].dims = {rows / 2, 4}; }), "has shape");
  EXPECT_CONTAINS(failure([&](PartTensors& p) { add_low_rank(p, q, rows, cols, 2); }),
                  "is of a sparse factor, which stands with a .low_rank_b in place of a matrix");
  EXPECT_CONTAINS(failure([&](PartTensors& p) { p.erase(q + ".weight"); }),
                  "is of a sparse factor, which stands with a .low_rank_b in place of a matrix");
  EXPECT_CONTAINS(failure([&](PartTensors& p) { add_sparse(p, q, rows, cols, 7); }),
                  "is a second sparse matrix, in addition to a sparse factor");
}

TEST(Dsformer, LeavesWhatWouldNotBecomeSmaller) {
  ThreadPool pool(1);
  const auto statistics = statistics_of(normal_values(50 * 64, 9), 64, pool);
  PassMatrix matrix = matrix_of(32, 64, "q8_0", 6);
  auto row = pass_of("dsformer:nonzeros=8")->apply(matrix, statistics, pool);
  EXPECT_EQ(row->action, "left");
  EXPECT_EQ(row->why, "32 atoms in q8_0 and 8 values a column are no smaller than the matrix in q8_0");
  EXPECT_CONTAINS(make_pass("dsformer:format=q4_k").error().message, "has blocks of 256 values");
}

}  // namespace
}  // namespace millrace
