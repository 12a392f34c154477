// SliceGPT: the rotation alone changes no output, and what is deleted are the components of least variance.
#include <cmath>
#include <cstring>

#include "compress/pruners/pruner_test.h"
#include "contains.h"
#include "model_runner.h"
#include "models/convert/convert.h"
#include "models/skipped_blocks.h"
#include "short_compression.h"

namespace millrace {
namespace {

using namespace testing;

std::vector<float> sliced_logits(const std::string& path) {
  auto runner = TestRunner::load(path, {});
  EXPECT_TRUE(runner.ok()) << path << ": " << (runner.ok() ? "" : runner.error().message);
  return runner.ok() ? (*runner)->logits({5, 17, 40, 3, 99, 21, 64}) : std::vector<float>();
}

double relative_change(const std::vector<float>& a, const std::vector<float>& b) {
  double change = 0, size = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    change += std::pow(double{a[i]} - b[i], 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(change / size);
}

const char* const kRotations[] = {"blocks", "one"};

// Tied heads, biases, norms of queries and keys, fused matrices.
TEST(SliceGpt, TheRotationAloneChangesNoOutput) {
  for (const std::string rotations : kRotations)
    for (const std::string model : {"llama", "qwen2_tied", "qwen3", "phi3"}) {
      const ScratchModel out;
      auto done =
          compress_model(short_compression(golden_gguf(model), out.path(), "slicegpt:keep=1,rotations=" + rotations));
      ASSERT_TRUE(done.ok()) << model << ": " << done.error().message;
      EXPECT_LT(relative_change(sliced_logits(out.path()), sliced_logits(golden_gguf(model))), 2e-3) << model;
      auto before = open_model_files(golden_gguf(model)), after = open_model_files(out.path());
      ASSERT_TRUE(before.ok() && after.ok());
      const StoredTensor *a = before->find("blk.0.attn_output.weight"), *b = after->find("blk.0.attn_output.weight");
      EXPECT_NE(std::memcmp(a->tensor.data, b->tensor.data, static_cast<size_t>(a->tensor.bytes)), 0);
      EXPECT_EQ(after->find("blk.0.ffn_shortcut.weight") != nullptr, rotations == "blocks");
    }
}

// Stored as floats, nothing is left of the error but that of sums of floats.
TEST(SliceGpt, WithoutSlicesAFloatModelKeepsItsLogits) {
  const ScratchModel floats;
  ThreadPool pool(2);
  ASSERT_TRUE(
      convert_model({.input = golden_gguf("llama"), .output = floats.path(), .format = "f32", .force = true}, pool)
          .ok());
  const std::vector<float> want = sliced_logits(floats.path());
  for (const std::string rotations : kRotations) {
    const ScratchModel out;
    auto done = compress_model(short_compression(floats.path(), out.path(), "slicegpt:keep=1,rotations=" + rotations));
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_LT(relative_change(sliced_logits(out.path()), want), 1e-4) << rotations;
  }
}

// label(once): compares figures of whole compressions, whose code other cases run too
TEST(SliceGpt, FewerDimsCostMoreTheFewerThereAre) {
  const std::string model = std::string(MILLRACE_SOURCE_DIR) + "/models/millrace-stories-6m.gguf";
  const std::vector<float> want = sliced_logits(model);
  for (const std::string rotations : kRotations) {
    double last = 0;
    for (const auto& [keep, dims] : {std::pair{1.0, 256}, std::pair{0.875, 224}, std::pair{0.5, 128}}) {
      std::string first;
      for (int threads : {1, 3}) {
        if (threads == 3 && dims != 224) continue;  // one size shows what threads could change
        const ScratchModel out;
        CompressOptions options =
            short_compression(model, out.path(), fmt::format("slicegpt:keep={},rotations={}", keep, rotations));
        options.threads = threads;
        auto done = compress_model(options);
        ASSERT_TRUE(done.ok()) << done.error().message;
        const std::string bytes = read_file(out.path());
        if (!first.empty()) {
          EXPECT_TRUE(bytes == first) << threads;
          continue;
        }
        first = bytes;
        auto loaded = LanguageModel::load(out.path(), {.threads = 1});
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        EXPECT_EQ((*loaded)->parts().model->spec().width, dims);
        const double change = relative_change(sliced_logits(out.path()), want);
        EXPECT_GT(change, last) << keep;
        EXPECT_LT(change, 2) << keep;
        last = change;
      }
    }
  }
}

// The components of a block are those of its own inputs, so that fewer dims keep more of their variance.
// label(once): compares figures of whole compressions, whose code other cases run too
TEST(SliceGpt, EachBlockKeepsMoreOfItsOwnVariance) {
  const std::string model = std::string(MILLRACE_SOURCE_DIR) + "/models/millrace-stories-6m.gguf";
  const auto variances = [&](const std::string& rotations) {
    const ScratchModel out;
    auto done = compress_model(short_compression(model, out.path(), "slicegpt:keep=0.5,rotations=" + rotations));
    EXPECT_TRUE(done.ok());
    std::vector<double> found;
    for (const auto& [part, row] : done->structure) found.push_back(row.figures.back().second);
    return found;
  };
  const std::vector<double> own = variances("blocks"), one = variances("one");
  ASSERT_EQ(own.size(), 13u);  // attention and MLP of six layers, and the head
  ASSERT_EQ(one.size(), 1u);
  for (size_t i = 0; i < own.size(); i += 2) EXPECT_GT(own[i], one[0] - 0.02) << i;
}

// A sliced model in chunks, in threads, and with blocks left out: the shortcut belongs to the stream, not to the block.
TEST(SliceGpt, ShortcutsDoNotDependOnTheBatchAndCarryTheStreamPastSkippedBlocks) {
  const ScratchModel out;
  const std::string model = golden_gguf("llama");
  ASSERT_TRUE(
      compress_model(short_compression(model, out.path(), "slicegpt:keep=1,rotations=blocks,shortcuts=f32")).ok());
  const std::vector<TokenId> tokens = {5, 17, 40, 3, 99, 21, 64};
  std::vector<float> whole;
  for (int threads : {1, 3})
    for (int64_t chunk : {0, 1, 3}) {
      auto runner = TestRunner::load(out.path(), {.threads = threads});
      ASSERT_TRUE(runner.ok());
      const std::vector<float> logits = (*runner)->logits(tokens, chunk);
      if (whole.empty()) whole = logits;
      EXPECT_EQ(logits, whole) << threads << " " << chunk;
    }
  auto before = TestRunner::load(model, {}), after = TestRunner::load(out.path(), {});
  ASSERT_TRUE(before.ok() && after.ok());
  const auto layers = static_cast<size_t>((*before)->model().spec().layer_count());
  for (const bool mlp : {false, true}) {
    SkippedBlocks skipped{std::vector<uint8_t>(layers, 0), std::vector<uint8_t>(layers, 0)};
    (mlp ? skipped.mlp : skipped.attention)[0] = 1;
    (*before)->context().skipped = (*after)->context().skipped = &skipped;
    EXPECT_LT(relative_change((*after)->logits(tokens), (*before)->logits(tokens)), 2e-3) << mlp;
  }
}

TEST(SliceGpt, AFolderHasNoPlaceForShortcuts) {
  const ScratchModel out;
  ASSERT_TRUE(
      compress_model(short_compression(golden_gguf("llama"), out.path(), "slicegpt:keep=1,rotations=blocks")).ok());
  const std::string folder = out.path() + ".folder";
  ThreadPool pool(2);
  auto done = convert_model({.input = out.path(), .output = folder}, pool);
  ASSERT_FALSE(done.ok());
  EXPECT_CONTAINS(done.error().message, "no place for the matrices between the blocks");
  const ScratchModel rounded;  // and a second compression leaves them as they are
  ASSERT_TRUE(compress_model(short_compression(out.path(), rounded.path(), "gptq:format=q8_0")).ok());
  auto files = open_model_files(rounded.path());
  ASSERT_TRUE(files.ok());
  EXPECT_NE(files->find("blk.0.attn_shortcut.weight")->tensor.format, find_format("q8_0"));
  EXPECT_LT(relative_change(sliced_logits(rounded.path()), sliced_logits(golden_gguf("llama"))), 0.05);
}

TEST(SliceGpt, SaysWhatIsWrong) {
  const ScratchModel out;
  for (const std::string model : {"gpt2", "mixtral", "gemma3", "olmo2"}) {
    auto done = compress_model(short_compression(golden_gguf(model), out.path(), "slicegpt"));
    ASSERT_FALSE(done.ok());
    EXPECT_CONTAINS(done.error().message, "has no place for it; it needs RMS norms before attention");
    EXPECT_EQ(done.error().message.starts_with("--pass slicegpt: a mixture of experts has no place"),
              model == "mixtral");
  }
  for (const auto& [options, want] :
       {std::pair{"rotations=two", "must be one or blocks"}, std::pair{"shortcuts=q9", "must be a format that GGUF"},
        std::pair{"rotations=one,shortcuts=f16", "belongs to rotations=blocks"}}) {
    auto done = compress_model(short_compression(golden_gguf("llama"), out.path(), std::string("slicegpt:") + options));
    ASSERT_FALSE(done.ok());
    EXPECT_CONTAINS(done.error().message, want);
  }
}

}  // namespace
}  // namespace millrace
