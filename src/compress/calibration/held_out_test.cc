// The part of the calibration text that passes do not see, and what the report says of it.
#include <gtest/gtest.h>

#include "contains.h"
#include "short_compression.h"

namespace millrace {
namespace {

using testing::contains;
using testing::golden_gguf;
using testing::read_file;
using testing::ScratchModel;
using testing::short_compression;

// Windows that are held out might as well not be there.
TEST(HeldOut, IsNotSeenByThePasses) {
  const ScratchModel with, without;
  CompressOptions options = short_compression(golden_gguf("llama"), with.path(), "gptq");
  options.calibration.held_out = 0.34;  // two of six windows
  auto done = compress_model(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->calibration_windows, 4);
  EXPECT_EQ(done->calibration_tokens, 4 * 64);
  EXPECT_EQ(done->held_out_windows, 2);
  EXPECT_EQ(done->held_out_tokens, 2 * 64);
  options = short_compression(golden_gguf("llama"), without.path(), "gptq");
  options.calibration.windows = 4;
  auto fewer = compress_model(options);
  ASSERT_TRUE(fewer.ok()) << fewer.error().message;
  EXPECT_TRUE(read_file(with.path()) == read_file(without.path()));
  for (size_t i = 0; i < done->matrices.size(); ++i) {
    const CompressedMatrix& one = done->matrices[i];
    EXPECT_EQ(one.output_error, fewer->matrices[i].output_error);
    EXPECT_LT(fewer->matrices[i].held_out_error, 0);
    EXPECT_GT(one.held_out_error, 0) << one.name;
    EXPECT_NE(one.held_out_error, one.output_error) << one.name;
    EXPECT_EQ(one.held_out_rows, 2 * 64) << one.name;
  }
}

// On the shipped model GPTQ is nearer than rounding on rows that it did not see, if by less than on those it did.
// label(once): compares figures of whole compressions, whose code other cases run too
TEST(HeldOut, ErrorsAreBesideThoseOfRounding) {
  const ScratchModel out;
  CompressOptions options =
      short_compression(std::string(MILLRACE_SOURCE_DIR) + "/models/millrace-stories-6m.gguf", out.path(), "gptq");
  options.calibration.context = 128;
  options.calibration.windows = 10;
  options.calibration.held_out = 0.4;
  auto done = compress_model(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  double error = 0, rounded = 0, seen = 0;
  for (const CompressedMatrix& one : done->matrices) {
    error += one.held_out_error;
    rounded += one.rounded_held_out_error;
    seen += one.output_error;
  }
  EXPECT_LT(error, rounded);
  EXPECT_GT(error, seen);
}

// A pass that needs no text has errors there, too: those of rounding are its own.
TEST(HeldOut, MeasuresPassesThatSeeNoText) {
  const ScratchModel out;
  CompressOptions options = short_compression(golden_gguf("mixtral"), out.path(), "rtn:format=q4_0,fit=plain");
  options.calibration.held_out = 0.5;
  auto done = compress_model(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  for (const CompressedMatrix& one : done->matrices) {
    EXPECT_LT(one.output_error, 0) << one.name;
    EXPECT_TRUE(one.held_out_error > 0 || one.held_out_rows == 0) << one.name;
    EXPECT_EQ(one.held_out_error, one.rounded_held_out_error) << one.name;
  }
}

TEST(HeldOut, SaysWhatIsWrong) {
  const ScratchModel out;
  CompressOptions options = short_compression(golden_gguf("llama"), out.path(), "rtn");
  options.calibration.held_out = 0.5;
  options.calibration.windows = 1;
  auto done = compress_model(options);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message,
            "README.md: is one window of 64 tokens, of which no part can be held out; use a longer text or a smaller "
            "--context");
  options.calibration.text = "short";
  done = compress_model(options);
  ASSERT_FALSE(done.ok());
  EXPECT_CONTAINS(done.error().message, " tokens do not fill a window of 64; use a longer text or a smaller --context");
  options.calibration.name.clear();
  done = compress_model(options);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "--held-out: is a part of the calibration text; give one with --calibrate");
}

// --target-bits is the pass llm_mq.
TEST(TargetBits, IsTheIntegerProgram) {
  const ScratchModel by_pass, by_bits;
  ASSERT_TRUE(compress_model(short_compression(golden_gguf("llama"), by_pass.path(), "llm_mq:bits=5.5")).ok());
  CompressOptions options = short_compression(golden_gguf("llama"), by_bits.path(), "");
  options.passes.clear();
  options.target_bits = 5.5;
  auto done = compress_model(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->passes, std::vector<std::string>{"llm_mq:bits=5.5"});
  EXPECT_TRUE(read_file(by_bits.path()) == read_file(by_pass.path()));
  options.passes = {"gptq"};
  done = compress_model(options);
  ASSERT_FALSE(done.ok());
  EXPECT_CONTAINS(done.error().message, "so --pass gptq cannot be before it");
}

}  // namespace
}  // namespace millrace
