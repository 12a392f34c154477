// Conversion of Gemma 3n and 4 and of models with other mixers than attention: within a file kind, and from folders to
// GGUF files. The scripts that made the golden models wrote both of their files. convert_folders_test.cc has the way
// back.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/ordered_json.h"
#include "conversions.h"
#include "expected.h"
#include "loader/model_files.h"

namespace millrace {
namespace {

std::vector<TokenId> tokens_of(const std::string& name) {
  return nlohmann::json::parse(testing::read_file(golden() / name / "expected.json"))["tokens"]
      .get<std::vector<TokenId>>();
}

constexpr double kRounded = 0.05;  // relative error of logits by matrices in f16; tiny random models enlarge it

struct TensorValues {
  std::string type;
  std::vector<int64_t> dims;
  std::vector<float> values;
};

std::map<std::string, TensorValues> values_in(const std::string& path) {
  std::map<std::string, TensorValues> out;
  const auto files = open_model_files(path);
  EXPECT_TRUE(files.ok()) << path;
  for (const StoredTensor& one : files->tensors) {
    const Tensor& tensor = one.tensor;
    std::vector<float> values(static_cast<size_t>(tensor.values()));
    tensor.format->decode(tensor.data, values.data(), tensor.values());
    out[one.name] = {one.type_name, {tensor.dims.begin(), tensor.dims.begin() + tensor.rank}, std::move(values)};
  }
  return out;
}

// The two files may round 1 + w and -exp(w) differently.
bool is_computed(const std::string& name) { return name.ends_with("norm.weight") || name.ends_with("ssm_a"); }

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '/', '_');
  return name;
}

// Older GGUF files hold the keys and values of latent attention's heads in one matrix, which conversion divides:
// attn_kv_b [heads, keys + values, rank] is attn_k_b [heads, rank, keys] and attn_v_b [heads, values, rank].
void divide_latent_heads(const std::string& name, std::map<std::string, TensorValues>& tensors) {
  const auto config = nlohmann::json::parse(testing::read_file(golden() / name / "config.json"));
  const int64_t heads = config["num_attention_heads"], rank = config["kv_lora_rank"], keys = config["qk_nope_head_dim"],
                each = keys + config["v_head_dim"].get<int64_t>();
  for (auto one = tensors.begin(); one != tensors.end();) {
    const size_t at = one->first.find("attn_kv_b.weight");
    if (at == std::string::npos) {
      ++one;
      continue;
    }
    TensorValues k{one->second.type, {heads, rank, keys}, {}}, v{one->second.type, {heads, each - keys, rank}, {}};
    const auto value = [&](int64_t head, int64_t row, int64_t r) {
      return one->second.values[static_cast<size_t>((head * each + row) * rank + r)];
    };
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t r = 0; r < rank; ++r)
        for (int64_t row = 0; row < keys; ++row) k.values.push_back(value(head, row, r));
      for (int64_t row = keys; row < each; ++row)
        for (int64_t r = 0; r < rank; ++r) v.values.push_back(value(head, row, r));
    }
    const std::string prefix = one->first.substr(0, at);
    tensors[prefix + "attn_k_b.weight"] = std::move(k);
    tensors[prefix + "attn_v_b.weight"] = std::move(v);
    one = tensors.erase(one);
  }
}

class FamilyFolders : public ::testing::TestWithParam<const char*> {};

TEST_P(FamilyFolders, BecomeTheirGgufFiles) {
  const std::string name = GetParam();
  const Scratch scratch;
  const auto report = convert(golden() / name, scratch / "out.gguf");
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const std::string& left : report->left_out)
    EXPECT_TRUE(left.starts_with("mtp.") || left.find("vis") != std::string::npos) << left;
  const auto written = values_in(scratch / "out.gguf");
  auto expected = values_in(golden() / name / "model.gguf");
  if (name.starts_with("deepseek")) divide_latent_heads(name, expected);
  for (const auto& [tensor, want] : expected) {
    if (name == "qwen35" && tensor.find(".nextn.") != std::string::npos) continue;  // a part of such a layer
    const auto found = written.find(tensor);
    ASSERT_NE(found, written.end()) << tensor;
    const TensorValues& got = found->second;
    EXPECT_EQ(got.type, want.type) << tensor;
    EXPECT_EQ(got.dims, want.dims) << tensor;
    ASSERT_EQ(got.values.size(), want.values.size()) << tensor;
    for (size_t i = 0; i < want.values.size(); ++i) {
      if (is_computed(tensor))
        ASSERT_FLOAT_EQ(got.values[i], want.values[i]) << tensor << " " << i;
      else
        ASSERT_EQ(got.values[i], want.values[i]) << tensor << " " << i;
    }
  }
  for (const auto& [tensor, got] : written) EXPECT_TRUE(expected.contains(tensor)) << tensor << " is one too many";
  const auto tokens = tokens_of(name);
  const auto want = logits_of(golden() / name, tokens);
  EXPECT_LT(conversion_error(logits_of(scratch / "out.gguf", tokens), want), 1e-5);
  make(scratch / "out.gguf", scratch / "f16.gguf", "f16");
  EXPECT_LT(conversion_error(logits_of(scratch / "f16.gguf", tokens), want), kRounded);
}

INSTANTIATE_TEST_SUITE_P(All, FamilyFolders,
                         ::testing::Values("mamba", "mamba_odd", "qwen3next", "qwen35", "qwen35moe", "gemma4",
                                           "gemma4_e", "gemma4_moe", "gemma3n", "falcon_h1", "falcon_h1_norm",
                                           "deepseek2", "deepseek2_groups", "deepseek3"),
                         test_name);

class OtherMixers : public ::testing::TestWithParam<const char*> {};

TEST_P(OtherMixers, AreConvertedWithinAFileKind) {
  const std::string name = GetParam();
  const Scratch scratch;
  const auto tokens = tokens_of(name);
  const std::string file = golden() / name / "model.gguf", folder = golden() / name;
  make(file, scratch / "same.gguf");
  EXPECT_EQ(conversion_error(logits_of(scratch / "same.gguf", tokens), logits_of(file, tokens)), 0);
  make(file, scratch / "f16.gguf", "f16");
  EXPECT_LT(conversion_error(logits_of(scratch / "f16.gguf", tokens), logits_of(file, tokens)), kRounded);
  make(folder, scratch / "f16", "f16");
  EXPECT_LT(conversion_error(logits_of(scratch / "f16", tokens), logits_of(folder, tokens)), kRounded);
}

INSTANTIATE_TEST_SUITE_P(All, OtherMixers,
                         ::testing::Values("mamba", "mamba_odd", "falcon_h1", "falcon_h1_norm", "deepseek2",
                                           "deepseek3", "qwen3next", "qwen35", "qwen35moe"),
                         test_name);

// Files with one tensor missing, or with one of another shape.
TEST(FamilyFolders, DamagedOnesAreRefused) {
  const std::pair<const char*, const char*> damaged[] = {{"gemma4", "model.layers.2.mlp.down_proj.weight"},
                                                         {"gemma4_moe", "model.layers.1.router.scale"},
                                                         {"mamba", "backbone.layers.1.mixer.out_proj.weight"}};
  for (const auto& [name, tensor] : damaged) {
    const Scratch scratch;
    fs::copy(golden() / name, scratch / "folder", fs::copy_options::recursive);
    const std::string path = scratch / "folder/model.safetensors";
    std::string image = testing::read_file(path);
    const size_t at = image.find(tensor);
    ASSERT_NE(at, std::string::npos) << tensor;
    image.replace(at, 1, "x");  // the tensor has another name then
    std::ofstream(path, std::ios::binary) << image;
    const auto report = convert(scratch / "folder", scratch / "out.gguf");
    ASSERT_FALSE(report.ok()) << tensor;
    EXPECT_EQ(report.error().kind, ErrorKind::corrupt) << tensor;
    EXPECT_FALSE(fs::exists(scratch / "out.gguf"));
  }
}

TEST(OtherMixers, WhatAFamilyCannotWriteIsRefusedByName) {
  const std::pair<const char*, const char*> refused[] = {
      {"gemma3n/model.gguf", "convert it to a GGUF file"},
      {"gemma4_e/model.gguf", "convert it to a GGUF file"},
      {"gpt_oss/model.gguf", "convert to GGUF"},
      {"encoders/gemma_embedding", "the dense layers behind the pooling"}};
  for (const auto& [from, what] : refused) {
    const Scratch scratch;
    const bool file = std::string_view(from).ends_with(".gguf");
    const auto report = convert(golden() / from, scratch / (file ? "folder" : "out.gguf"));
    ASSERT_FALSE(report.ok()) << from;
    EXPECT_EQ(report.error().kind, ErrorKind::unsupported) << from;
    EXPECT_NE(report.error().message.find(what), std::string::npos) << from << ": " << report.error().message;
  }
}

}  // namespace
}  // namespace millrace
