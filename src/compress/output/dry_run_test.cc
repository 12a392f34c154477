// A dry run says what the run does: the same actions, formats and bytes, and writes nothing.
#include <gtest/gtest.h>

#include "compress/pass.h"
#include "short_compression.h"

namespace millrace {
namespace {

using testing::golden_gguf;
using testing::ScratchModel;
using testing::short_compression;

struct DryRunCase {
  std::string name;
  std::vector<std::string> passes;
};

// Every pass that works on matrices, and pipelines.
std::vector<DryRunCase> dry_run_cases() {
  std::vector<DryRunCase> out = {
      {"permuted", {"gptq:order=activation,permute=true"}},
      {"pruned", {"wanda:pattern=2:4", "gptq"}},
      {"ria_permuted", {"ria:pattern=2:4,permute=true"}},
      {"sparse_table", {"squeezellm:sparse=0.05"}},
      {"table_after_outliers", {"outliers:part=0.02", "squeezellm"}},
      {"rotated", {"rotate:format=,inputs=int4", "gptq"}},
      {"corrected", {"gptq", "lqer:rank=4"}},
      {"scaled", {"awq:format=", "rtn"}},
      {"small_blocks", {"billm:block=16"}},
      {"groups", {"lut_gemm:group=16"}},
      {"pair_and_rest", {"svd:rest=q4_0"}},
      {"chosen_formats", {"llm_mq:bits=6,formats=q4_0+q8_0"}},
      {"outlier_columns", {"llm_int8:threshold=1"}},
  };
  for (const auto& [record, factory] : passes().entries())
    if (auto pass = make_pass(record.name); record.name != "llm_mq" && pass.ok() && !(*pass)->structural())
      out.push_back({std::string(record.name), {std::string(record.name)}});
  return out;
}

class DryRun : public ::testing::TestWithParam<DryRunCase> {};

TEST_P(DryRun, SaysWhatTheRunDoes) {
#ifdef MILLRACE_SANITIZED
  const std::vector<std::string> models = {"mixtral"};  // half of the time
#else
  const std::vector<std::string> models = {"llama", "mixtral"};
#endif
  for (const std::string& model : models) {
    const ScratchModel out;
    CompressOptions options = short_compression(golden_gguf(model), out.path(), "");
    options.passes = GetParam().passes;
    options.keep = {"blk.1.attn_v=q8_0"};
    options.dry_run = true;
    auto planned = compress_model(options);
    ASSERT_TRUE(planned.ok()) << planned.error().message;
    EXPECT_FALSE(std::filesystem::exists(out.path()));
    options.dry_run = false;
    auto done = compress_model(options);
    ASSERT_TRUE(done.ok()) << done.error().message;
    ASSERT_EQ(planned->matrices.size(), done->matrices.size());
    for (size_t i = 0; i < done->matrices.size(); ++i) {
      const CompressedMatrix &plan = planned->matrices[i], &real = done->matrices[i];
      EXPECT_EQ(plan.name, real.name);
      for (size_t p = 0; p < real.passes.size(); ++p) {
        if (plan.estimated || real.calibration_rows == 0) continue;  // an expert that no token reached is left
        EXPECT_EQ(plan.passes[p].second.action, real.passes[p].second.action) << plan.name;
        const bool left = real.passes[p].second.action == "left";
        EXPECT_TRUE(!left || plan.passes[p].second.why == real.passes[p].second.why) << plan.name;
      }
      if (plan.estimated) continue;
      EXPECT_EQ(plan.format, real.format) << plan.name;
      EXPECT_EQ(plan.bytes, real.bytes) << plan.name;
    }
    EXPECT_EQ(planned->weights, done->weights);
    EXPECT_EQ(planned->input_bytes, done->input_bytes);
    EXPECT_TRUE(planned->estimated() || planned->output_bytes == done->output_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, DryRun, ::testing::ValuesIn(dry_run_cases()),
                         [](const auto& one) { return one.param.name; });

// The bytes of the report are those of the file's tensors.
TEST(DryRun, ReportsTheBytesOfTheFile) {
  const ScratchModel out;
  auto done = compress_model(short_compression(golden_gguf("llama"), out.path(), "outliers"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  auto files = open_model_files(out.path());
  ASSERT_TRUE(files.ok());
  int64_t bytes = 0;
  for (const StoredTensor& stored : files->tensors) bytes += stored.tensor.bytes;
  EXPECT_EQ(done->output_bytes, bytes);
  EXPECT_GT(done->bits_per_weight(), 16);
}

TEST(DryRun, PlansASmallerModel) {
  const ScratchModel out;
  CompressOptions options = short_compression(golden_gguf("llama"), out.path(), "shortgpt:drop=1");
  options.dry_run = true;
  auto planned = compress_model(options);
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  EXPECT_FALSE(std::filesystem::exists(out.path()));
  EXPECT_FALSE(planned->structure.empty());
  options.dry_run = false;
  auto done = compress_model(options);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(planned->output_bytes, done->output_bytes);
}

}  // namespace
}  // namespace millrace
