// Every architecture, in both file kinds, against logits of an independent reference (see README.md here).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/ordered_json.h"
#include "golden/expected.h"
#include "loader/model_files.h"
#include "model_runner.h"
#include "models/arch.h"
#include "shared_data.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::Expected;
using testing::read_expected;
using testing::relative_error;
using testing::TestRunner;

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(MILLRACE_SOURCE_DIR) / "tests/golden"))
    if (fs::exists(entry.path() / "expected.json")) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

class Golden : public ::testing::TestWithParam<std::string> {};

void check(const fs::path& path, const Expected& expected, double bound, int64_t context) {
  SCOPED_TRACE(path.string());
  auto runner = TestRunner::load(path.string(), {.context = context});
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  auto logits = (*runner)->logits(expected.tokens);
  ASSERT_EQ(logits.size(), expected.logits.size());
  EXPECT_LT(relative_error(logits, expected.logits), bound);

  std::vector<TokenId> tokens = expected.tokens;
  std::vector<TokenId> greedy;
  const size_t vocab = static_cast<size_t>((*runner)->model().spec().vocab);
  for (size_t i = 0; i < expected.greedy.size(); ++i) {
    auto all = (*runner)->logits(tokens);
    auto last = all.end() - static_cast<ptrdiff_t>(vocab);
    greedy.push_back(static_cast<TokenId>(std::max_element(last, all.end()) - last));
    tokens.push_back(greedy.back());
  }
  EXPECT_EQ(greedy, expected.greedy);
}

TEST_P(Golden, BothFileKindsMatchTheReference) {
  const fs::path folder = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden" / GetParam();
  Expected expected = read_expected(folder);
  // BF16 weights round the activations of every matrix too (formats/format.h), so only they are less exact.
  const double bound = GetParam().ends_with("_bf16") ? 2e-2 : 1e-4;
  // LongRoPE takes its short factors up to the original context of 96 in these models.
  const int64_t context = GetParam() == "phi3_longrope_short" || GetParam() == "phi4_mini" ? 96 : 0;
  check(folder, expected, bound, context);
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".gguf") check(entry.path(), expected, bound, context);
}

// Past the model's context the base of its rotations would grow with the text.
TEST(DynamicRope, EndsAtTheModelsContext) {
  const std::string folder = (fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/internlm2").string();
  EXPECT_TRUE(TestRunner::load(folder, {.context = 128}).ok());
  const auto longer = TestRunner::load(folder, {.context = 129});
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(longer.error().message,
            "context: " + folder +
                " scales positions past 128 tokens by the length of the text (rope scaling 'dynamic'), which is not "
                "supported, 129 requested; ask for no more than 128");
}

// GGUF's hidden_activation, in a file of a family that has another one by itself too, and Hugging Face's hidden_act.
TEST(Activations, AreReadOrRefusedByName) {
  const auto changed = [](const std::string& model, const std::string& key, const nlohmann::ordered_json& name) {
    auto files = open_model_files((fs::path(MILLRACE_SOURCE_DIR) / "tests/golden" / model).string());
    EXPECT_TRUE(files.ok());
    nlohmann::ordered_json config = *files->config;
    config[key] = name;
    files->config = std::make_shared<const nlohmann::ordered_json>(config);
    files->path = "m";
    return read_arch_spec(*files);
  };
  const auto read = [&](const std::string& model, const nlohmann::ordered_json& name) {
    const std::string arch = model == "llama_relu" ? "llama" : model;
    return changed(model + "/model.gguf", arch + ".hidden_activation", name);
  };
  EXPECT_EQ(changed("llama_relu", "hidden_act", "silu")->activation, HiddenActivation::silu);
  EXPECT_EQ(changed("llama_relu", "hidden_act", "fatrelu").error().message, "m/config.json: activation 'fatrelu'");
  EXPECT_EQ(read("llama_relu", "relu")->activation, HiddenActivation::relu);
  EXPECT_EQ(read("llama_relu", nullptr)->activation, HiddenActivation::silu);
  EXPECT_EQ(read("qwen3moe", "gelu")->activation, HiddenActivation::gelu_erf);
  EXPECT_EQ(read("gemma", nullptr)->activation, HiddenActivation::gelu_tanh);
  EXPECT_EQ(read("gemma", "relu")->activation, HiddenActivation::relu);
  const auto unknown = read("llama_relu", "fatrelu");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(unknown.error().message, "m: activation 'fatrelu'");
  EXPECT_EQ(read("llama_relu", 3).error().message, "m: hidden_activation must be a string, the name of an activation");
}

INSTANTIATE_TEST_SUITE_P(All, Golden, ::testing::ValuesIn(golden_names()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace millrace
