// Tensors whose format --keep fixes: which ones, what passes make of them, and what cannot be.
#include "compress/keep_rules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/ordered_json.h"
#include "contains.h"
#include "short_compression.h"

namespace millrace {
namespace {

using testing::contains;
using testing::golden_gguf;
using testing::ScratchModel;
using testing::short_compression;

std::string format_in(const std::string& path, const std::string& tensor) {
  auto files = open_model_files(path);
  const StoredTensor* stored = files.ok() ? files->find(tensor) : nullptr;
  return stored && stored->tensor.format ? std::string(stored->tensor.format->name) : "";
}

Result<CompressReport> keeping(const std::string& path, const std::string& pass, std::vector<std::string> keep) {
  CompressOptions options = short_compression(golden_gguf("llama"), path, pass);
  options.keep = std::move(keep);
  return compress_model(options);
}

const CompressedMatrix& matrix_named(const CompressReport& report, const std::string& name) {
  return *std::ranges::find(report.matrices, name, &CompressedMatrix::name);
}

TEST(KeepRule, MatchesNamesWithAndWithoutTheirEnding) {
  auto rules = read_keep_rules({"blk.*.ffn_*=q8_0", "output=q6_k", "blk.[01].attn_?=f16"});
  ASSERT_TRUE(rules.ok()) << rules.error().message;
  EXPECT_TRUE(rules->at(0).matches("blk.12.ffn_down.weight"));
  EXPECT_FALSE(rules->at(0).matches("blk.12.attn_q.weight"));
  EXPECT_TRUE(rules->at(1).matches("output.weight"));
  EXPECT_FALSE(rules->at(1).matches("output_norm.weight"));
  EXPECT_TRUE(rules->at(2).matches("blk.1.attn_v.weight"));
  EXPECT_FALSE(rules->at(2).matches("blk.1.attn_output.weight"));
  EXPECT_EQ(rules->at(1).format, find_format("q6_k"));
}

// gptq chooses levels of the other format; a pass that stores something else leaves the matrix alone.
TEST(KeepRule, FixesTheFormatWhateverThePassAsksFor) {
  for (const std::string pass : {"gptq:format=q4_0", "rtn:format=q4_0", "lut_gemm", "svd", "smoothquant:format=q4_0"}) {
    const ScratchModel out;
    auto done = keeping(out.path(), pass, {"blk.0.attn_*=q5_1", "blk.0.*=f16", "*embd=q8_0"});
    ASSERT_TRUE(done.ok()) << pass << ": " << done.error().message;
    EXPECT_EQ(format_in(out.path(), "blk.0.attn_q.weight"), "q5_1") << pass;  // of the first rule
    EXPECT_EQ(format_in(out.path(), "blk.0.ffn_down.weight"), "f16") << pass;
    EXPECT_EQ(format_in(out.path(), "token_embd.weight"), "q8_0") << pass;
    EXPECT_NE(format_in(out.path(), "blk.1.attn_q.weight"), "q5_1") << pass;
    const CompressedMatrix& kept = matrix_named(*done, "blk.0.attn_q.weight");
    const PassRow& row = kept.passes.at(0).second;
    const bool rounds = pass.starts_with("gptq") || pass.starts_with("rtn");
    EXPECT_EQ(row.action, rounds ? "quantized" : "left") << pass;
    EXPECT_EQ(row.why, rounds ? "" : "kept as q5_1 by --keep blk.0.attn_*=q5_1");
    EXPECT_EQ(kept.format, "q5_1");
    auto files = open_model_files(out.path());
    ASSERT_TRUE(files.ok());
    EXPECT_EQ((*files->config)["millrace.compress.keep"].size(), 3u);
  }
}

TEST(KeepRule, KeepsPrunersAway) {
  const ScratchModel out;
  auto done = keeping(out.path(), "wanda", {"blk.1.attn_v=q8_0"});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_LT(matrix_named(*done, "blk.1.attn_v.weight").zeros, 0.1);
  EXPECT_GT(matrix_named(*done, "blk.0.attn_v.weight").zeros, 0.4);
}

// Every weight that a pruner leaves in groups of 2:4 or 4:8 is stored, to the precision of 8 bits.
TEST(KeepRule, SparseFormatsHoldWhatPrunersLeave) {
  for (const std::string pass : {"magnitude:pattern=2:4", "wanda:pattern=4:8"}) {
    const ScratchModel dense, sparse;
    auto pruned = keeping(dense.path(), pass, {"token_embd=f16"});
    ASSERT_TRUE(pruned.ok()) << pruned.error().message;
    auto done = keeping(sparse.path(), pass, {"token_embd=f16", "blk.*=q8_4of8"});
    ASSERT_TRUE(done.ok()) << done.error().message;
    const CompressedMatrix& row = matrix_named(*done, "blk.1.ffn_up.weight");
    EXPECT_EQ(row.format, "q8_4of8");
    EXPECT_EQ(row.passes.at(0).second.action, "pruned");
    EXPECT_GE(row.zeros, 0.5);
    auto left = open_model_files(dense.path()), stored = open_model_files(sparse.path());
    ASSERT_TRUE(left.ok() && stored.ok());
    const Tensor &from = left->find("blk.1.ffn_up.weight")->tensor, &to = stored->find("blk.1.ffn_up.weight")->tensor;
    EXPECT_EQ(to.format->name, "q8_4of8");
    std::vector<float> expected(static_cast<size_t>(from.values())), values(expected.size());
    from.format->decode(from.data, expected.data(), from.values());
    to.format->decode(to.data, values.data(), to.values());
    for (size_t block = 0; block < values.size(); block += 32) {
      float most = 0;
      for (size_t i = block; i < block + 32; ++i) most = std::max(most, std::fabs(expected[i]));
      for (size_t i = block; i < block + 32; ++i) ASSERT_NEAR(values[i], expected[i], most / 240) << pass << " " << i;
    }
  }
}

// Mixed formats count those that are fixed.
TEST(KeepRule, IsPartOfTheBitsOfLlmMq) {
  const ScratchModel out;
  auto done = keeping(out.path(), "llm_mq:bits=6,formats=q4_0+q5_1+q8_0", {"blk.0.ffn_*=q8_0"});
  ASSERT_TRUE(done.ok()) << done.error().message;
  double bytes = 0, weights = 0;
  for (const CompressedMatrix& one : done->matrices) {
    bytes += static_cast<double>(one.bytes);
    weights += static_cast<double>(one.rows * one.cols);
    EXPECT_TRUE(one.format == "q8_0" || !one.name.starts_with("blk.0.ffn_")) << one.name;
  }
  EXPECT_LE(8 * bytes / weights, 6);
}

TEST(KeepRule, TakesTheReplacementOfAFormatThatDoesNotFit) {
  const ScratchModel out;
  auto done = keeping(out.path(), "rtn:format=q4_0", {"blk.0.attn_q=q6_k"});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(format_in(out.path(), "blk.0.attn_q.weight"), "q8_0");
  EXPECT_CONTAINS(done->notes.at(0), "blk.0.attn_q.weight is stored as q8_0: ");
}

TEST(KeepRule, SaysWhatIsWrong) {
  const ScratchModel out;
  const auto failure = [&](std::vector<std::string> keep, const std::string& pass) {
    auto done = keeping(out.path(), pass, std::move(keep));
    EXPECT_FALSE(done.ok());
    EXPECT_FALSE(std::filesystem::exists(out.path()));
    return done.ok() ? "" : done.error().message;
  };
  EXPECT_EQ(failure({"q8_0"}, "rtn"), "--keep q8_0: must be PATTERN=FORMAT, such as 'output*=q8_0'");
  EXPECT_EQ(failure({"=q8_0"}, "rtn"), "--keep =q8_0: must be PATTERN=FORMAT, such as 'output*=q8_0'");
  EXPECT_EQ(failure({"output=q9_9"}, "rtn"),
            "--keep output=q9_9: 'q9_9' must be a format that GGUF files can have, such as q8_0");
  EXPECT_CONTAINS(failure({"blk.0.*=q8_0", "layer*=q8_0"}, "rtn"),
                  "--keep layer*=q8_0: matches no tensor of the output");
  EXPECT_CONTAINS(failure({"*_norm=q8_0"}, "rtn"), "--keep *_norm=q8_0: matches no matrix");
  EXPECT_CONTAINS(failure({"output=q8_0"}, "shortgpt"), "--pass shortgpt: makes another model at once");
}

}  // namespace
}  // namespace millrace
