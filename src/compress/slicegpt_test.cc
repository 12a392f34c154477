// SliceGPT: the rotation alone changes no output, and what is deleted are the components of least variance.
#include <cmath>
#include <cstring>

#include "compress/pruner_test.h"
#include "contains.h"
#include "model_runner.h"
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

// Tied heads, biases, norms of queries and keys, fused matrices.
TEST(SliceGpt, TheRotationAloneChangesNoOutput) {
  for (const std::string model : {"llama", "qwen2_tied", "qwen3", "phi3"}) {
    const ScratchModel out;
    auto done = compress_model(short_compression(golden_gguf(model), out.path(), "slicegpt:keep=1"));
    ASSERT_TRUE(done.ok()) << model << ": " << done.error().message;
    EXPECT_LT(relative_change(sliced_logits(out.path()), sliced_logits(golden_gguf(model))), 2e-3) << model;
    auto before = open_model_files(golden_gguf(model)), after = open_model_files(out.path());
    ASSERT_TRUE(before.ok() && after.ok());
    const StoredTensor *a = before->find("blk.0.attn_output.weight"), *b = after->find("blk.0.attn_output.weight");
    EXPECT_NE(std::memcmp(a->tensor.data, b->tensor.data, static_cast<size_t>(a->tensor.bytes)), 0);
  }
}

TEST(SliceGpt, FewerDimsCostMoreTheFewerThereAre) {
  const std::string model = std::string(MILLRACE_SOURCE_DIR) + "/models/millrace-stories-6m.gguf";
  const std::vector<float> want = sliced_logits(model);
  double last = 0;
  for (const auto& [keep, dims] : {std::pair{1.0, 256}, std::pair{0.875, 224}, std::pair{0.5, 128}}) {
    std::string first;
    for (int threads : {1, 3}) {
      const ScratchModel out;
      CompressOptions options = short_compression(model, out.path(), fmt::format("slicegpt:keep={}", keep));
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

TEST(SliceGpt, SaysWhatIsWrong) {
  const ScratchModel out;
  for (const std::string model : {"gpt2", "mixtral", "gemma3", "olmo2"}) {
    auto done = compress_model(short_compression(golden_gguf(model), out.path(), "slicegpt"));
    ASSERT_FALSE(done.ok());
    EXPECT_CONTAINS(done.error().message, "has no place for it; it needs RMS norms before attention");
  }
}

}  // namespace
}  // namespace millrace
