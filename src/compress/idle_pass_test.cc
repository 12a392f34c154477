// Passes that change nothing are named in the report, and calibration texts that are no text in its notes.
#include <gtest/gtest.h>

#include "short_compression.h"

namespace millrace {
namespace {

using testing::golden_gguf;
using testing::ScratchModel;
using testing::short_compression;

std::vector<std::string> idle_of(std::vector<std::string> passes, std::vector<std::string> keep = {}) {
  const ScratchModel out;
  CompressOptions options = short_compression(golden_gguf("llama"), out.path(), "");
  options.passes = std::move(passes);
  options.keep = std::move(keep);
  auto done = compress_model(options);
  EXPECT_TRUE(done.ok()) << done.error().message;
  return done.ok() ? done->idle : std::vector<std::string>();
}

TEST(IdlePasses, AreNamedWithTheirReason) {
  const auto lqer = idle_of({"lqer"});  // the model is in F32
  ASSERT_EQ(lqer.size(), 1u);
  EXPECT_TRUE(lqer[0].starts_with("--pass lqer: changed none of ")) << lqer[0];
  EXPECT_TRUE(lqer[0].ends_with("matrices: it loses nothing in f32")) << lqer[0];
  for (const char* nothing : {"wanda:pattern=4:4", "wanda:sparsity=0", "magnitude:sparsity=0", "ria:pattern=4:4"}) {
    const auto pruner = idle_of({nothing});
    ASSERT_EQ(pruner.size(), 1u) << nothing;
    EXPECT_TRUE(pruner[0].ends_with("matrices: it prunes no weight")) << pruner[0];
  }
  const auto second = idle_of({"gptq:format=q4_0", "lqer"}, {"*=f32"});
  EXPECT_EQ(second.size(), 2u);
}

TEST(IdlePasses, PassesThatWorkAreNot) {
  for (const auto& passes : std::vector<std::vector<std::string>>{
           {"wanda:pattern=2:4"}, {"gptq:format=q4_0", "lqer:rank=4"}, {"rtn:format=q8_0"}, {"svd:ratio=0.5"}})
    EXPECT_TRUE(idle_of(passes).empty()) << passes[0];
}

TEST(Compress, EncodersAreRefused) {
  const ScratchModel out;
  CompressOptions options = short_compression(golden_gguf("encoders/bert"), out.path(), "");
  options.passes = {"rtn:format=q8_0"};
  const auto done = compress_model(options);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().kind, ErrorKind::unsupported);
  EXPECT_TRUE(done.error().message.ends_with("is an encoder (bert), which cannot be compressed"))
      << done.error().message;
}

TEST(CalibrationText, WarnsOfWhatIsNoText) {
  std::string bytes;
  for (uint32_t i = 0, state = 1; i < 4096; ++i)
    bytes += static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  EXPECT_TRUE(text_warning("random", bytes).starts_with("random does not look like text: "));
  EXPECT_TRUE(text_warning("zeros", std::string(100, '\0')).starts_with("zeros does not look like text: 100 of 100"));
  std::string text;
  for (int i = 0; i < 200; ++i) text += "Grüße, \t世界!\r\n";
  EXPECT_EQ(text_warning("text", text), "");
  EXPECT_EQ(text_warning("text", text + "\x80"), "");  // one odd byte
  EXPECT_EQ(text_warning("empty", ""), "");
}

}  // namespace
}  // namespace millrace
