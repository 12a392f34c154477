// TensorGPT: the TT-SVD and its contraction against plain definitions, and models whose lookups multiply cores against
// the same models with the products in an ordinary table.
#include <algorithm>
#include <numeric>

#include "compress/compress_test.h"
#include "compress/factorizers/symmetric_eigen.h"
#include "compress/factorizers/tensor_train_svd.h"
#include "contains.h"
#include "model_logits.h"
#include "models/tensor_train_loader.h"
#include "short_compression.h"
#include "weight_parts_file.h"

namespace millrace {
namespace {

using namespace testing;

std::vector<float> decoded(const TensorTrain& train, const std::vector<float>& cores) {
  std::vector<float> row(static_cast<size_t>(train.width()));
  train.decode(cores.data(), row.data());
  return row;
}

double squared_change(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - b[i], 2);
  return sum;
}

TEST(TensorTrain, SizesAndRanksOfARow) {
  const auto text = [](int64_t width, int modes, int64_t rank) {
    const TensorTrain train = tensor_train_shape(width, modes, rank);
    EXPECT_EQ(train.width(), width);
    return fmt::format("{} {}", fmt::join(train.sizes.begin(), train.sizes.begin() + train.modes, "x"),
                       fmt::join(train.ranks.begin(), train.ranks.begin() + train.modes, ","));
  };
  EXPECT_EQ(text(256, 2, 4), "16x16 4,1");
  EXPECT_EQ(text(256, 4, 8), "4x4x4x4 4,8,4,1");
  EXPECT_EQ(text(40, 2, 99), "8x5 5,1");
  EXPECT_EQ(text(768, 3, 4), "12x8x8 4,4,1");
  EXPECT_EQ(text(7, 2, 4), "7 1");
  EXPECT_EQ(tensor_train_shape(256, 2, 4).values(), 2 * 16 * 4);
}

// The sum over all ranks of products of core values.
TEST(TensorTrain, DecodesTheProductOfItsCores) {
  const TensorTrain train = tensor_train_shape(60, 3, 3);
  const std::vector<float> cores = normal_values(train.values(), 3);
  const std::vector<float> row = decoded(train, cores);
  const int64_t n1 = train.sizes[0], n2 = train.sizes[1], n3 = train.sizes[2], r1 = train.ranks[0], r2 = train.ranks[1];
  const float *first = cores.data(), *second = first + n1 * r1, *third = second + r1 * n2 * r2;
  for (int64_t i = 0; i < n1; ++i)
    for (int64_t j = 0; j < n2; ++j)
      for (int64_t k = 0; k < n3; ++k) {
        double sum = 0;
        for (int64_t a = 0; a < r1; ++a)
          for (int64_t b = 0; b < r2; ++b)
            sum += double{first[i * r1 + a]} * second[(a * n2 + j) * r2 + b] * third[b * n3 + k];
        EXPECT_NEAR(row[static_cast<size_t>((i * n2 + j) * n3 + k)], sum, 1e-4);
      }
}

TEST(TensorTrain, FullRanksLoseNothing) {
  for (const auto& [width, modes] : {std::pair<int64_t, int>{256, 2}, {256, 8}, {60, 3}, {40, 4}, {12, 1}}) {
    const TensorTrain train = tensor_train_shape(width, modes, 64);
    const std::vector<float> row = normal_values(width, 4);
    std::vector<float> cores(static_cast<size_t>(train.values()));
    EXPECT_NEAR(tensor_train_svd(train, row.data(), cores.data()), 0, 1e-9);
    EXPECT_LT(squared_change(decoded(train, cores), row), 1e-8) << width << " " << modes;
  }
}

// Two modes: the nearest matrix of the rank (Eckart and Young). More: what the singular values say.
TEST(TensorTrain, LosesTheSingularValuesThatWereDropped) {
  const std::vector<float> row = normal_values(256, 5);
  ThreadPool pool(1);
  std::vector<double> products(256);
  for (int64_t i = 0; i < 16; ++i)
    for (int64_t j = 0; j < 16; ++j)
      for (int64_t k = 0; k < 16; ++k)
        products[static_cast<size_t>(i * 16 + j)] +=
            double{row[static_cast<size_t>(i * 16 + k)]} * row[static_cast<size_t>(j * 16 + k)];
  const EigenPairs eigen = symmetric_eigen(products, 16, 1, pool);
  for (const int64_t rank : {1, 3, 7}) {
    const TensorTrain train = tensor_train_shape(256, 2, rank);
    std::vector<float> cores(static_cast<size_t>(train.values()));
    const double said = tensor_train_svd(train, row.data(), cores.data());
    const double best = std::accumulate(eigen.values.begin() + rank, eigen.values.end(), 0.0);
    EXPECT_NEAR(said, best, 1e-6 * best);
    EXPECT_NEAR(squared_change(decoded(train, cores), row), best, 1e-4 * best);
  }
  double last = 1e300;
  for (const int64_t rank : {1, 2, 4, 8, 16}) {
    const TensorTrain train = tensor_train_shape(256, 4, rank);
    std::vector<float> cores(static_cast<size_t>(train.values()));
    const double said = tensor_train_svd(train, row.data(), cores.data());
    EXPECT_NEAR(squared_change(decoded(train, cores), row), said, 1e-4 * last) << rank;
    EXPECT_LT(said, last);
    last = said;
  }
}

// A head of its own, a tied one, learned positions, scaled embeddings.
TEST(TensorGpt, LookupsMultiplyTheCores) {
  for (const std::string model : {"llama", "qwen2_tied", "gpt2", "gemma"}) {
    for (const std::string options : {"rank=2", "modes=3,rank=2,format=f32"}) {
      const ScratchModel out;
      CompressOptions compress = short_compression(golden_gguf(model), out.path(), "tensorgpt:" + options);
      compress.calibration = {};
      auto done = compress_model(compress);
      ASSERT_TRUE(done.ok()) << model << ": " << done.error().message;
      auto before = open_model_files(golden_gguf(model)), after = open_model_files(out.path());
      ASSERT_TRUE(before.ok() && after.ok());
      const std::vector<float> table = floats_of(*before, "token_embd.weight");
      const std::vector<float> cores = floats_of(*after, "token_embd.weight");
      const Tensor& shape = before->find("token_embd.weight")->tensor;
      auto train = read_tensor_train(*after, shape.cols());
      ASSERT_TRUE(train.ok()) << train.error().message;
      ASSERT_EQ(train->values() * shape.rows(), std::ssize(cores));
      std::vector<float> rows(table.size());
      for (int64_t r = 0; r < shape.rows(); ++r)
        train->decode(cores.data() + r * train->values(), rows.data() + r * shape.cols());
      const double change = squared_change(rows, table) / squared_change(table, std::vector<float>(table.size()));
      EXPECT_NEAR(change, done->structure.at(0).second.figures.at(1).second, 1e-3) << model;
      EXPECT_GT(change, 0.01) << model;
      const bool tied = before->find("output.weight") == nullptr;
      EXPECT_EQ(floats_of(*after, "output.weight"), tied ? table : floats_of(*before, "output.weight")) << model;
      PartTensors plain = {{"token_embd.weight", {{shape.rows(), shape.cols()}, rows}}};
      if (tied) plain["output.weight"] = {{shape.rows(), shape.cols()}, table};
      const PartedModel same(golden_gguf(model), plain);
      EXPECT_EQ(logits_of(out.path()), logits_of(same.path())) << model << " " << options;
      EXPECT_NE(logits_of(out.path()), logits_of(golden_gguf(model))) << model;
    }
  }
}

TEST(TensorGpt, ThreadsDoNotChangeABit) {
  std::string first;
  for (int threads : {1, 3}) {
    const ScratchModel out;
    CompressOptions options = short_compression(golden_gguf("llama"), out.path(), "tensorgpt:rank=2");
    options.threads = threads;
    ASSERT_TRUE(compress_model(options).ok());
    const std::string bytes = read_file(out.path());
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads;
  }
}

TEST(TensorGpt, SaysWhatIsWrong) {
  const ScratchModel out;
  const auto failure = [&](const std::string& pass) {
    auto done = compress_model(short_compression(golden_gguf("llama"), out.path(), pass));
    EXPECT_FALSE(done.ok()) << pass;
    return done.ok() ? "" : done.error().message;
  };
  EXPECT_EQ(
      failure("tensorgpt:rank=4"),
      "--pass tensorgpt: cores of rank 4 for 2 modes of 8x4 have 48 values, no fewer than the 32 of a row; give a "
      "smaller rank");
  EXPECT_CONTAINS(failure("tensorgpt:rank=1,format=q8_0"), "the 12 values of a row's cores are not whole blocks of 32");
  EXPECT_EQ(failure("tensorgpt:format=none"),
            "pass tensorgpt: format 'none': must be a format that GGUF files can have, such as f16");
  ASSERT_TRUE(compress_model(short_compression(golden_gguf("llama"), out.path(), "tensorgpt:rank=2")).ok());
  const ScratchModel again;
  auto twice = compress_model(short_compression(out.path(), again.path(), "magnitude"));
  ASSERT_FALSE(twice.ok());
  EXPECT_CONTAINS(twice.error().message, "token_embd.tensor_train: matrices with weight parts cannot be converted");
}

TEST(TensorGpt, DamagedShapesAreRefused) {
  const auto failure = [](const std::vector<float>& shape, int64_t cols, const std::string& name) {
    PartTensors parts = {{name, {{2, std::ssize(shape) / 2}, shape}}};
    parts["token_embd.weight"] = {{128, cols}, std::vector<float>(static_cast<size_t>(128 * cols))};
    const PartedModel model(golden_gguf("llama"), parts);
    auto files = open_model_files(model.path());
    auto runner = TestRunner::load(model.path(), {});
    EXPECT_FALSE(runner.ok());
    return runner.ok() ? "" : runner.error().message;
  };
  const std::string name = "token_embd.tensor_train";
  EXPECT_CONTAINS(failure({8, 2, 2, 1}, 20, name), "has modes of 16 values or more in all, must have 32");
  EXPECT_CONTAINS(failure({8, 8, 2, 1}, 32, name), "has modes of 64 values or more in all, must have 32");
  EXPECT_CONTAINS(failure({8, 4, 2, 2}, 24, name), "holds 2, must be sizes and ranks from 1 to 1");
  EXPECT_CONTAINS(failure({8, 4, NAN, 1}, 24, name), "must be sizes and ranks from 1 to 64");
  EXPECT_CONTAINS(failure({-8, -4, 2, 1}, 24, name), "holds -8, must be sizes and ranks from 1 to 32");
  EXPECT_CONTAINS(failure({8, 4, 3, 1}, 36, name), "has cores of 36 values for rows of 32, must have fewer");
  EXPECT_CONTAINS(failure({8, 4, 2, 1}, 32, name), "has shape [128, 32], the model needs [128, 24]");
  EXPECT_CONTAINS(failure(std::vector<float>(18, 1), 24, name), "is F32 of shape [2, 9], must be F32 [2, modes]");
  EXPECT_CONTAINS(failure({8, 4, 2, 1}, 32, "output.tensor_train"),
                  "makes a matrix a tensor train, which only token_embd.weight can be");
}

}  // namespace
}  // namespace millrace
