// LoRA adapters in both file kinds, over models in both file kinds, against logits of the merged model from an
// independent reference (make_lora.py); and adapters that must be refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "golden/expected.h"
#include "model_runner.h"
#include "shared_data.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::TestRunner;

const fs::path kGolden = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden";

class Lora : public ::testing::TestWithParam<std::string> {};

TEST_P(Lora, EveryPairOfFileKindsMatchesTheMergedModel) {
  const fs::path folder = kGolden / "lora" / GetParam();
  const testing::Expected expected = testing::read_expected(folder);
  for (const fs::path& base : {kGolden / GetParam(), kGolden / GetParam() / "model.gguf"}) {
    for (const fs::path& adapter : {folder, folder / "adapter_model.safetensors", folder / "adapter.gguf"}) {
      SCOPED_TRACE(base.string() + " with " + adapter.string());
      auto runner = TestRunner::load(base.string(), {});
      ASSERT_TRUE(runner.ok()) << runner.error().message;
      const auto plain = (*runner)->logits(expected.tokens);
      auto added = (*runner)->add_adapter(adapter.string());
      ASSERT_TRUE(added.ok()) << added.error().message;
      const auto logits = (*runner)->logits(expected.tokens);
      ASSERT_EQ(logits.size(), expected.logits.size());
      EXPECT_LT(testing::relative_error(logits, expected.logits), 1e-4);
      EXPECT_EQ((*runner)->logits(expected.tokens, 5), logits);  // chunks change no bit

      // Added again with the opposite scale, it cancels out except for rounding.
      ASSERT_TRUE((*runner)->add_adapter(adapter.string(), -1.0f).ok());
      EXPECT_LT(testing::relative_error((*runner)->logits(expected.tokens), plain), 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Lora,
                         ::testing::Values("llama3", "llama_linear", "phi3", "qwen2moe", "gpt2", "gemma2", "gemma4",
                                           "gemma4_e", "gemma3n", "gpt_oss"),
                         [](const auto& test) { return test.param; });

// Layer 5 of this model reads the keys and values of layer 1.
TEST(LoraOfSharedKeys, FactorsForKeysThatALayerDoesNotComputeAreRefused) {
  const fs::path folder = fs::temp_directory_path() / ("millrace_lora_shared_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  fs::copy(kGolden / "lora/gemma4_e", folder, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
  std::string text = testing::read_file(folder / "adapter_model.safetensors");
  for (size_t at = 0; (at = text.find("layers.1.self_attn.k_proj", at)) != std::string::npos;) text[at + 7] = '5';
  std::ofstream(folder / "adapter_model.safetensors", std::ios::binary) << text;
  auto runner = TestRunner::load((kGolden / "gemma4_e").string(), {});
  ASSERT_TRUE(runner.ok());
  const auto added = (*runner)->add_adapter(folder.string());
  fs::remove_all(folder);
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().kind, ErrorKind::unsupported);
  EXPECT_NE(added.error().message.find(
                "adapters cannot change blk.5.attn_k.weight: layer 5 reads the keys and values of layer 1"),
            std::string::npos)
      << added.error().message;
}

class LoraRefused : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("millrace_lora_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    fs::copy(kGolden / "lora/llama3", folder_, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
    auto runner = TestRunner::load((kGolden / "llama3").string(), {});
    ASSERT_TRUE(runner.ok());
    runner_ = std::move(*runner);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void expect(const std::string& path, ErrorKind kind, const std::string& part) {
    const auto added = runner_->add_adapter(path);
    ASSERT_FALSE(added.ok());
    EXPECT_EQ(added.error().kind, kind) << added.error().message;
    EXPECT_NE(added.error().message.find(part), std::string::npos) << added.error().message;
  }
  void replace(const std::string& file, const std::string& from, const std::string& to) {
    std::string text = testing::read_file(folder_ / file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    std::ofstream(folder_ / file, std::ios::binary) << text;
  }

  fs::path folder_;
  std::unique_ptr<TestRunner> runner_;
};

TEST_F(LoraRefused, AdaptersOfOtherModels) {
  expect((kGolden / "lora/gemma2/adapter.gguf").string(), ErrorKind::user, "gemma2");
  expect((kGolden / "lora/llama_linear/adapter.gguf").string(), ErrorKind::corrupt, "blk.");  // other shapes
  expect((kGolden / "llama3/model.gguf").string(), ErrorKind::user, "is not an adapter");
  expect((kGolden / "lora/gpt2").string(), ErrorKind::unsupported, "c_attn");
}

TEST_F(LoraRefused, PeftTensorsOtherThanFactors) {
  replace("adapter_config.json", "\"use_dora\": false", "\"use_dora\": true");
  expect(folder_.string(), ErrorKind::unsupported, "DoRA");
  replace("adapter_config.json", "\"use_dora\": true", "\"use_dora\": false");
  replace("adapter_config.json", "\"bias\": \"none\"", "\"bias\": \"all\"");
  expect(folder_.string(), ErrorKind::unsupported, "biases");
  replace("adapter_config.json", "\"bias\": \"all\"", "\"bias\": \"none\"");
  replace("adapter_config.json", "\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": 2}");
  expect(folder_.string(), ErrorKind::unsupported, "alpha_pattern");
}

TEST_F(LoraRefused, DamagedFiles) {
  expect((folder_ / "nothing.gguf").string(), ErrorKind::corrupt, "nothing.gguf");
  replace("adapter_model.safetensors", "layers.0.self_attn.q_proj.lora_A", "layers.7.self_attn.q_proj.lora_A");
  expect(folder_.string(), ErrorKind::unsupported, "layers.7.self_attn.q_proj.lora_A");
  replace("adapter_model.safetensors", "layers.7.self_attn.q_proj.lora_A", "layers.0.self_attn.q_proj.lora_X");
  expect(folder_.string(), ErrorKind::unsupported, "lora_X");
  replace("adapter.gguf", "blk.0.attn_q.weight.lora_a", "blk.9.attn_q.weight.lora_a");
  expect((folder_ / "adapter.gguf").string(), ErrorKind::corrupt, "has no partner");
  fs::remove(folder_ / "adapter_config.json");
  expect(folder_.string(), ErrorKind::user, "adapter_config.json");
}

}  // namespace
}  // namespace millrace
