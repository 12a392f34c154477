// Every pruner on whole models: the file has its zeros, loads and runs, and neither threads nor the memory budget
// change a bit.
#include <cmath>

#include "compress/compress.h"
#include "model_runner.h"
#include "short_compression.h"

namespace millrace {
namespace {

using namespace testing;

class Pruners : public ::testing::TestWithParam<std::string> {};

TEST_P(Pruners, StoreZerosInAModelThatRuns) {
  for (const std::string model : {"llama", "mixtral", "gpt2"}) {
    const ScratchModel out;
    auto done = compress_model(short_compression(golden_gguf(model), out.path(), GetParam()));
    ASSERT_TRUE(done.ok()) << model << ": " << done.error().message;
    double zeros = 0, weights = 0;
    for (const CompressedMatrix& one : done->matrices) {
      if (one.passes.at(0).second.action != "pruned") continue;
      const auto size = static_cast<double>(one.rows * one.cols);
      EXPECT_NEAR(one.zeros, 0.5, 0.1) << one.name;
      zeros += one.zeros * size;
      weights += size;
    }
    EXPECT_LT(zeros / weights, 0.51) << model;
    EXPECT_GT(zeros / weights, 0.5 - 1.0 / 32) << model;  // fractions of rows of 32 columns are rounded down
    auto runner = TestRunner::load(out.path(), {});
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    for (float logit : (*runner)->logits({5, 17, 40, 3, 99, 21, 64})) ASSERT_TRUE(std::isfinite(logit));
  }
}

TEST_P(Pruners, ThreadsDoNotChangeABit) {
  std::string first;
  for (int threads : {1, 3}) {
    const ScratchModel out;
    CompressOptions options = short_compression(golden_gguf("llama"), out.path(), GetParam());
    options.threads = threads;
    auto done = compress_model(options);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const std::string bytes = read_file(out.path());
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads << " threads";
  }
}

// Surveys of a model whose layers are measured one after the other, each range twice or more.
TEST(Surveys, SeeAllLayersWhereMemoryIsLittle) {
  for (const std::string pass : {"owl", "isc"}) {
    const ScratchModel all, ranges;
    auto want = compress_model(short_compression(golden_gguf("llama"), all.path(), pass));
    ASSERT_TRUE(want.ok()) << want.error().message;
    EXPECT_EQ(want->ranges, 1);
    CompressOptions options = short_compression(golden_gguf("llama"), ranges.path(), pass);
    Result<CompressReport> got = Error::resource("not run");
    for (int64_t extra = 1; extra < 4096 && !got.ok() && got.error().kind == ErrorKind::resource;
         extra += 1 + extra / 8) {
      options.memory = program_memory() + (extra << 16);
      got = compress_model(options);
    }
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_TRUE(read_file(ranges.path()) == read_file(all.path())) << pass << got->ranges;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Pruners,
                         ::testing::Values("wanda", "magnitude", "sparsegpt", "sparsegpt:pattern=2:4", "obs", "ria",
                                           "ria:pattern=2:4,permute=true", "owl", "dsnot:threshold=0.001", "isc",
                                           "pruner_zero", "pruner_zero:search=2,population=6", "fast_pruning",
                                           "fast_pruning:pattern=2:4"),
                         [](const auto& one) {
                           std::string name = one.param;
                           for (char& c : name)
                             if (!std::isalnum(c)) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace millrace
