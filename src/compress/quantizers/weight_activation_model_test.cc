// Models of quantized weights and activations in the engine: equivalent before rounding, and the same bits with any
// number of threads and any chunks.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/ordered_json.h"
#include "compress/compress.h"
#include "model_logits.h"
#include "shared_data.h"
#include "test_paths.h"

namespace millrace {
namespace {

using namespace testing;

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name)
      : path_((std::filesystem::temp_directory_path() / fmt::format("millrace_wa_{}.{}.gguf", name, ::getpid()))
                  .string()) {}
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string repository_file(const std::string& name) { return std::string(MILLRACE_SOURCE_DIR) + "/" + name; }

void write_compressed(const std::string& input, const std::string& output, std::vector<std::string> passes,
                      int threads) {
  CompressOptions options;
  options.input = input;
  options.output = output;
  options.passes = std::move(passes);
  options.calibration = {
      .name = "README.md", .text = read_file(repository_file("models/README.md")), .context = 64, .windows = 4};
  options.threads = threads;
  options.force = true;
  auto done = compress_model(options);
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(double{a[i]} - b[i]));
  return most;
}

TEST(WeightActivation, ModelsRunWithoutAChangeByThreadsOrChunks) {
  const std::string input = repository_file("tests/golden/llama/model.gguf");
  const std::vector<float> plain = logits_of(input);
  for (const std::vector<std::string>& passes :
       {std::vector<std::string>{"gptq:format=q4_0", "round_inputs:inputs=int4,input_group=32"},
        {"smoothquant"},
        {"llm_int8:threshold=1"},
        {"zeroquant:format=q4_0"},
        {"zeroquant_lorc"},
        {"zeroquant_fp"},
        {"flexgen_int4"},
        {"outlier_suppression_plus:steps=4"},
        {"rptq"},
        {"atom"},
        {"llm_fp4:shift=1"},
        {"olive:inputs=int8"},
        {"billm:block=32"},
        {"qllm:steps=6"},
        {"qllm:threshold=0.5"},
        {"rotate:inputs=int4,clip=0.9,block=32"}}) {
    const TemporaryFile one("one"), three("three");
    write_compressed(input, one.path(), passes, 1);
    write_compressed(input, three.path(), passes, 3);
    EXPECT_TRUE(read_file(one.path()) == read_file(three.path())) << passes.back();
    const std::vector<float> logits = logits_of(one.path());
    EXPECT_EQ(logits, logits_of(one.path(), 3)) << passes.back();
    EXPECT_EQ(logits, logits_of(one.path(), 2, 3)) << passes.back();
    EXPECT_NE(logits, plain) << passes.back();
  }
}

// In the engine: scales and shifts move nothing but roundings.
TEST(WeightActivation, ModelsAreEquivalentBeforeRounding) {
  const std::string input = repository_file("tests/golden/llama/model.gguf");
  const std::vector<float> plain = logits_of(input);
  for (const char* pass :
       {"smoothquant:inputs=none,format=f32", "outlier_suppression_plus:inputs=none,format=f32,steps=3"}) {
    const TemporaryFile file("equal");
    write_compressed(input, file.path(), {pass}, 2);
    EXPECT_LT(largest_difference(logits_of(file.path()), plain), 1e-4) << pass;
  }
}

// Finer numbers of inputs are nearer.
TEST(RoundInputs, MoreBitsAreNearer) {
  const std::string input = repository_file("tests/golden/llama/model.gguf");
  const std::vector<float> plain = logits_of(input);
  double before = INFINITY;
  for (const char* inputs : {"int3", "int4", "int6", "int8"}) {
    const TemporaryFile file("bits");
    write_compressed(input, file.path(), {fmt::format("round_inputs:format=q8_0,inputs={}", inputs)}, 2);
    const double found = largest_difference(logits_of(file.path()), plain);
    EXPECT_LT(found, 0.8 * before) << inputs;
    before = found;
  }
}

}  // namespace
}  // namespace millrace
