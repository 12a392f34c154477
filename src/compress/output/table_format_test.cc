// The format of a tied embedding table: where --table raises it, what stands above it, and what the report says.
#include "compress/output/table_format.h"

#include <gtest/gtest.h>

#include "contains.h"
#include "short_compression.h"

namespace millrace {
namespace {

using testing::contains;
using testing::golden_gguf;
using testing::ScratchModel;
using testing::short_compression;

// A model with 128 tokens whose table of 64 columns is also the head.
constexpr const char* kTiedModel = "llama_tied_mqa";

Result<CompressReport> with_table(const std::string& input, const std::string& output, std::vector<std::string> passes,
                                  const std::string& table = "q8_0", std::vector<std::string> keep = {}) {
  CompressOptions options = short_compression(input, output, "");
  options.passes = std::move(passes);
  options.table = table;
  options.keep = std::move(keep);
  return compress_model(options);
}

// The format of the written table; the report says the same.
std::string written_table(const CompressReport& report) {
  auto files = open_model_files(report.output);
  const StoredTensor* stored = files.ok() ? files->find("token_embd.weight") : nullptr;
  if (!stored) return "";
  EXPECT_EQ(report.table.bytes, stored->tensor.bytes);
  EXPECT_EQ(report.table.format, stored->tensor.format->name);
  return std::string(stored->tensor.format->name);
}

const CompressedMatrix& table_row(const CompressReport& report) {
  return *std::ranges::find(report.matrices, "token_embd.weight", &CompressedMatrix::name);
}

TEST(TableFormat, PassesBelowEightBitsLeaveATiedTableAtQ8) {
  for (const std::string pass : {"gptq", "rtn", "awq", "quantease:iterations=1", "quip:greedy=0", "flexgen_int4",
                                 "smoothquant:format=q4_0", "svd:rest=q4_0", "llm_fp4"}) {
    const ScratchModel out;
    auto done = with_table(golden_gguf(kTiedModel), out.path(), {pass});
    ASSERT_TRUE(done.ok()) << pass << ": " << done.error().message;
    EXPECT_EQ(written_table(*done), "q8_0") << pass;
    EXPECT_TRUE(done->table.tied);
    EXPECT_LT(done->table.rounded_bytes, done->table.bytes) << pass;
    EXPECT_NEAR(done->table_share(), double(done->table.bytes) / double(done->output_bytes), 1e-12);
    const bool rounds = make_pass(pass).value()->rounds_to_any_format();
    EXPECT_EQ(table_row(*done).passes.at(0).second.action, rounds ? "quantized" : "left") << pass;
    EXPECT_EQ(table_row(*done).passes.at(0).second.why, rounds ? "" : "kept as q8_0 by --table q8_0") << pass;
  }
}

TEST(TableFormat, SameAndOtherFormatsAreChosen) {
  const ScratchModel out;
  auto done = with_table(golden_gguf(kTiedModel), out.path(), {"awq"}, "same");
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(written_table(*done), "q4_0");
  EXPECT_EQ(done->table.rounded_format, "");
  done = with_table(golden_gguf(kTiedModel), out.path(), {"gptq"}, "q5_1");
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(written_table(*done), "q5_1");
  EXPECT_EQ(done->table.rounded_format, "q4_0");
  EXPECT_EQ(done->table.rounded_bytes, 128 * 64 / 32 * 18);
  done = with_table(golden_gguf(kTiedModel), out.path(), {"gptq"}, "q9_9");
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "--table q9_9: must be same, or a format that GGUF files can have, such as q8_0");
}

// Formats of 8 bits, rules of --keep, passes that choose formats, and passes without a format decide themselves.
TEST(TableFormat, WhatElseDecidesComesFirst) {
  const ScratchModel out;
  auto done = with_table(golden_gguf(kTiedModel), out.path(), {"gptq"}, "q8_0", {"token_embd=q4_1"});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(written_table(*done), "q4_1");
  done = with_table(golden_gguf(kTiedModel), out.path(), {"llm_mq:bits=4.5,formats=q4_0+q8_0"});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(written_table(*done), "q4_0");
  done = with_table(golden_gguf(kTiedModel), out.path(), {"wanda"});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(written_table(*done), "f32");
  done = with_table(golden_gguf("llama"), out.path(), {"gptq"});  // with a head of its own
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(written_table(*done), "q4_0");
  EXPECT_FALSE(done->table.tied);
}

// A table that is stored in few bits already would only take more bytes.
TEST(TableFormat, ATableOfFewerBitsKeepsThem) {
  const ScratchModel few, out;
  auto done = with_table(golden_gguf(kTiedModel), few.path(), {"rtn:format=q5_1"}, "same");
  ASSERT_TRUE(done.ok()) << done.error().message;
  done = with_table(few.path(), out.path(), {"gptq"});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(written_table(*done), "q5_1");
}

TEST(TableFormat, ADryRunSaysTheSame) {
  for (const std::string pass : {"gptq", "awq", "squeezellm:format=q4_0"}) {
    const ScratchModel out;
    CompressOptions options = short_compression(golden_gguf(kTiedModel), out.path(), pass);
    options.dry_run = true;
    auto planned = compress_model(options);
    ASSERT_TRUE(planned.ok()) << planned.error().message;
    auto done = with_table(golden_gguf(kTiedModel), out.path(), {pass});
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(planned->table.bytes, done->table.bytes) << pass;
    EXPECT_EQ(planned->table.format, written_table(*done)) << pass;
    EXPECT_EQ(planned->output_bytes, done->output_bytes) << pass;
    EXPECT_EQ(planned->table.rounded_bytes, done->table.rounded_bytes) << pass;
  }
}

}  // namespace
}  // namespace millrace
