// Conversion of GGUF files of hybrid and recurrent models, and of those with latent attention, to folders: against the
// folders that the golden scripts wrote, and in a circle, after which no bit differs.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>

#include "base/ordered_json.h"
#include "conversions.h"
#include "expected.h"
#include "formats/format.h"
#include "golden/stored_bytes.h"
#include "loader/model_files.h"

namespace millrace {
namespace {

using FolderJson = nlohmann::json;  // objects whose fields are in another order are equal

// Multimodal folders name the text part's tensors otherwise; the output is the text part alone.
std::string plain_folder_name(const std::string& name) {
  constexpr std::string_view kNested = "model.language_model.";
  return name.starts_with(kNested) ? "model." + name.substr(kNested.size()) : name;
}

TensorBytes text_tensors(const std::string& folder) {
  TensorBytes out;
  for (auto& [name, tensor] : bytes_in(folder))
    if (name.find("visual") == std::string::npos) out[plain_folder_name(name)] = std::move(tensor);
  return out;
}

FolderJson fields_of(const std::string& folder) {
  const auto config = FolderJson::parse(testing::read_file(std::filesystem::path(folder) / "config.json"));
  return config.contains("text_config") ? config["text_config"] : config;
}

std::vector<float> floats_of(const StoredBytes& tensor) {
  EXPECT_EQ(tensor.type, "F32");
  std::vector<float> out(tensor.bytes.size() / sizeof(float));
  std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
  return out;
}

// w + 1 and -exp(w) lose bits of w. Only Qwen's files have the first, and recurrent layers the second.
bool loses_bits(const std::string& name) {
  return name.ends_with("A_log") ||
         (name.find("norm") != std::string::npos && name.find("linear_attn.norm") == std::string::npos);
}

std::string folder_test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '/', '_');
  return name;
}

class GgufToFolder : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufToFolder, WritesTheFolderOfTheScript) {
  const std::string name = GetParam(), original = golden() / name;
  const Scratch scratch;
  const auto report = convert(original + "/model.gguf", scratch / "folder");
  ASSERT_TRUE(report.ok()) << report.error().message;
  const TensorBytes written = bytes_in(scratch / "folder");
  TensorBytes expected = text_tensors(original);
  if (name == "qwen35") expected.erase("mtp.fc.weight");  // a part of such a layer
  if (name == "mamba_odd")                                // a GGUF file has biases, which are zeros
    for (const auto& [tensor, bytes] : written)
      if (tensor.ends_with("conv1d.bias")) expected[tensor] = bytes;
  for (const auto& [tensor, want] : expected) {
    const auto found = written.find(tensor);
    ASSERT_NE(found, written.end()) << tensor;
    EXPECT_EQ(found->second.shape, want.shape) << tensor;
    const std::vector<float> a = floats_of(found->second), b = floats_of(want);
    ASSERT_EQ(a.size(), b.size()) << tensor;
    for (size_t i = 0; i < a.size(); ++i) {
      if (loses_bits(tensor))
        ASSERT_NEAR(a[i], b[i], 2e-7 * std::max(1.0f, std::abs(b[i]))) << tensor << " " << i;
      else
        ASSERT_EQ(a[i], b[i]) << tensor << " " << i;
    }
  }
  for (const auto& [tensor, got] : written) EXPECT_TRUE(expected.contains(tensor)) << tensor << " is one too many";
}

// The output states what the script's config.json does, except for what inference does not read.
TEST_P(GgufToFolder, DescribesTheModelInTransformersFields) {
  const std::string name = GetParam();
  const Scratch scratch;
  const auto report = convert(golden() / name / "model.gguf", scratch / "folder");
  ASSERT_TRUE(report.ok()) << report.error().message;
  const FolderJson written = fields_of(scratch / "folder"), original = fields_of(golden() / name);
  const std::set<std::string> unread = {"architectures",
                                        "model_type",
                                        "attention_dropout",
                                        "initializer_range",
                                        "use_cache",
                                        "router_aux_loss_coef",
                                        "output_router_logits",
                                        "rope_scaling",
                                        "mamba_ssm_dtype",
                                        "mtp_use_dedicated_embeddings",
                                        "expand",
                                        "rescale_prenorm_residual",
                                        "residual_in_fp32",
                                        "time_step_floor",
                                        "time_step_init_scheme",
                                        "time_step_max",
                                        "time_step_min",
                                        "time_step_scale",
                                        "pad_token_id"};
  for (const auto& [key, value] : original.items()) {
    if (unread.contains(key)) continue;
    if (name == "qwen35" && key == "mtp_num_hidden_layers") continue;  // its layer is not whole
    if (name == "mamba_odd" && key == "use_conv_bias") continue;
    if (name == "mamba_odd" && key == "time_step_rank" && value == "auto") continue;
    ASSERT_TRUE(written.contains(key)) << key;
    EXPECT_EQ(written[key], value) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufToFolder,
                         ::testing::Values("qwen3next", "qwen35", "qwen35moe", "mamba", "mamba_odd", "deepseek2",
                                           "deepseek2_groups", "deepseek3", "draft_heads/mtp_qwen35",
                                           "draft_heads/mtp_qwen35moe"),
                         folder_test_name);

// A copy of a folder whose numbers have the precision of BF16, as published checkpoints have, and factors of 1.
void copy_rounded(const std::string& from, const std::string& to) {
  fs::copy(from, to, fs::copy_options::recursive);
  fs::remove(fs::path(to) / "model.gguf");
  std::string image = testing::read_file(fs::path(to) / "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, image.data(), sizeof(header));
  for (size_t at = sizeof(header) + header; at + 4 <= image.size(); at += 4) image[at] = image[at + 1] = 0;
  std::ofstream(fs::path(to) / "model.safetensors", std::ios::binary) << image;
  auto config = FolderJson::parse(testing::read_file(fs::path(to) / "config.json"));
  for (auto& [key, value] : config.items()) {
    if (!key.ends_with("multiplier") && !key.ends_with("multipliers")) continue;
    if (value.is_array())
      for (auto& one : value) one = 1.0;
    else
      value = 1.0;
  }
  std::ofstream(fs::path(to) / "config.json") << config;
}

std::vector<TokenId> circle_tokens(const std::string& name) {
  return FolderJson::parse(testing::read_file(golden() / name / "expected.json"))["tokens"].get<std::vector<TokenId>>();
}

class FolderCircle : public ::testing::TestWithParam<const char*> {};

TEST_P(FolderCircle, ReturnsTheSameBytes) {
  const std::string name = GetParam();
  const Scratch scratch;
  copy_rounded(golden() / name, scratch / "from");
  const auto there = convert(scratch / "from", scratch / "there.gguf");
  ASSERT_TRUE(there.ok()) << there.error().message;
  const auto back = convert(scratch / "there.gguf", scratch / "back");
  ASSERT_TRUE(back.ok()) << back.error().message;
  TensorBytes expected = text_tensors(scratch / "from"), written = bytes_in(scratch / "back");
  if (name == "qwen35") expected.erase("mtp.fc.weight");
  if (name == "mamba_odd") std::erase_if(written, [](const auto& one) { return one.first.ends_with("conv1d.bias"); });
  expect_same_bytes(written, expected);
  const auto tokens = circle_tokens(name);
  const auto want = logits_of(scratch / "from", tokens);
  EXPECT_LT(conversion_error(logits_of(scratch / "there.gguf", tokens), want), 1e-5);
  EXPECT_EQ(conversion_error(logits_of(scratch / "back", tokens), want), 0);
}

INSTANTIATE_TEST_SUITE_P(All, FolderCircle,
                         ::testing::Values("falcon_h1", "falcon_h1_norm", "qwen3next", "qwen35", "qwen35moe", "mamba",
                                           "mamba_odd", "deepseek2", "deepseek2_groups", "deepseek3",
                                           "draft_heads/mtp_qwen35", "draft_heads/mtp_qwen35moe"),
                         folder_test_name);

class FalconH1Folders : public ::testing::TestWithParam<const char*> {};

// Its matrices have the factors, so the folder states 1 for them, and the way back to a GGUF file changes nothing.
TEST_P(FalconH1Folders, OfAGgufFileHaveItsMatrices) {
  const std::string from = golden() / GetParam() / "model.gguf";
  const Scratch scratch;
  make(from, scratch / "folder");
  const FolderJson written = fields_of(scratch / "folder"), original = fields_of(golden() / GetParam());
  EXPECT_EQ(written["ssm_multipliers"], FolderJson({1.0, 1.0, 1.0, 1.0, 1.0}));
  EXPECT_EQ(written["key_multiplier"], 1.0);
  for (const char* key : {"mamba_d_ssm", "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state",
                          "mamba_d_conv", "mamba_conv_bias", "mamba_rms_norm", "mamba_norm_before_gate",
                          "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "rope_theta",
                          "rms_norm_eps", "tie_word_embeddings", "max_position_embeddings"})
    EXPECT_EQ(written[key], original[key]) << key;
  const auto tokens = circle_tokens(GetParam());
  EXPECT_LT(conversion_error(logits_of(scratch / "folder", tokens), logits_of(from, tokens)), 1e-6);
  make(scratch / "folder", scratch / "again.gguf");
  TensorBytes again = bytes_in(scratch / "again.gguf"), expected = bytes_in(from);
  for (auto& [name, tensor] : expected) {
    if (!name.ends_with(".ssm_a")) continue;  // some numbers are the -exp() of no float
    const std::vector<float> a = floats_of(again[name]), b = floats_of(tensor);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_FLOAT_EQ(a[i], b[i]) << name;
    tensor = again[name];
  }
  expect_same_bytes(again, expected);
}

INSTANTIATE_TEST_SUITE_P(All, FalconH1Folders, ::testing::Values("falcon_h1", "falcon_h1_norm"), folder_test_name);

// Changes fields of a copy of a golden folder.
void copy_changed(const std::string& name, const std::string& to, const FolderJson& changes) {
  fs::copy(golden() / name, to, fs::copy_options::recursive);
  auto config = FolderJson::parse(testing::read_file(fs::path(to) / "config.json"));
  config.update(changes);
  std::ofstream(fs::path(to) / "config.json") << config;
}

// One table cannot have the factors of both the embedding and the head.
TEST(FalconH1Factors, OfATiedHeadMakeItASeparateMatrix) {
  const Scratch scratch;
  copy_changed("falcon_h1_norm", scratch / "folder", {{"embedding_multiplier", 2.5}, {"lm_head_multiplier", 0.4}});
  const auto report = convert(scratch / "folder", scratch / "out.gguf");
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_FALSE(report->notes.empty());
  EXPECT_NE(report->notes.front().find("the head is tied"), std::string::npos) << report->notes.front();
  EXPECT_TRUE(bytes_in(scratch / "out.gguf").contains("output.weight"));
  const auto tokens = circle_tokens("falcon_h1_norm");
  EXPECT_LT(conversion_error(logits_of(scratch / "out.gguf", tokens), logits_of(scratch / "folder", tokens)), 1e-5);
}

TEST(FalconH1Factors, OfFilesWithPositiveDecaysAreRefused) {
  const Scratch scratch;
  std::string image = testing::read_file(golden() / "falcon_h1" / "model.gguf");
  const auto files = open_model_files((golden() / "falcon_h1" / "model.gguf").string());
  ASSERT_TRUE(files.ok());
  const float positive = 0.5f;
  std::memcpy(image.data() + files->find("blk.1.ssm_a")->offset, &positive, sizeof(positive));
  std::ofstream(scratch / "bad.gguf", std::ios::binary) << image;
  const auto report = convert(scratch / "bad.gguf", scratch / "folder");
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().kind, ErrorKind::corrupt);
  EXPECT_NE(report.error().message.find("blk.1.ssm_a"), std::string::npos) << report.error().message;
  EXPECT_FALSE(fs::exists(scratch / "folder"));
}

// What GGUF has no key for.
TEST(DeepseekFolders, WithExpertsInEverySecondLayerAreRefused) {
  const Scratch scratch;
  copy_changed("deepseek2", scratch / "folder", {{"moe_layer_freq", 2}, {"first_k_dense_replace", 0}});
  const auto report = convert(scratch / "folder", scratch / "out.gguf");
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().kind, ErrorKind::unsupported);
  EXPECT_NE(report.error().message.find("whether layer 1 has experts"), std::string::npos) << report.error().message;
}

// Writes a copy of a folder whose kv_b_proj have eight bits and scales of blocks, or the same values as F32.
void copy_with_fp8_latents(const std::string& from, const std::string& to, bool fp8) {
  constexpr int64_t kBlock = 16;
  fs::copy(from, to, fs::copy_options::recursive);
  fs::remove(fs::path(to) / "model.gguf");
  const Format& format = *find_format("f8_e4m3");
  const auto files = open_model_files(from);
  ASSERT_TRUE(files.ok());
  testing::SafetensorsBytes image;
  for (const auto& [name, tensor] : bytes_in(from)) {
    const Tensor& shape = files->find(name)->tensor;
    std::string dims;
    for (int i = 0; i < shape.rank; ++i)
      dims += (i > 0 ? "," : "") + std::to_string(shape.dims[static_cast<size_t>(i)]);
    if (!name.ends_with("kv_b_proj.weight")) {
      image.add(name, "F32", "[" + dims + "]", testing::Bytes().raw(tensor.bytes));
      continue;
    }
    const int64_t rows = shape.rows(), cols = shape.cols(), across = (cols - 1) / kBlock + 1;
    std::vector<float> values = floats_of(tensor), scales;
    for (int64_t i = 0; i < ((rows - 1) / kBlock + 1) * across; ++i)
      scales.push_back(0.5f + 0.125f * static_cast<float>(i % 7));
    std::vector<uint8_t> encoded(values.size());
    format.encode(values.data(), encoded.data(), rows * cols);
    format.decode(encoded.data(), values.data(), rows * cols);
    for (int64_t i = 0; i < rows * cols; ++i)
      values[static_cast<size_t>(i)] *= scales[static_cast<size_t>(i / cols / kBlock * across + i % cols / kBlock)];
    testing::Bytes bytes, of_scales;
    if (fp8)
      for (const uint8_t byte : encoded) bytes.put(byte);
    else
      for (const float value : values) bytes.put(value);
    image.add(name, fp8 ? "F8_E4M3" : "F32", "[" + dims + "]", bytes);
    for (const float scale : scales) of_scales.put(scale);
    if (fp8)
      image.add(name + "_scale_inv", "F32",
                "[" + std::to_string((rows - 1) / kBlock + 1) + "," + std::to_string(across) + "]", of_scales);
  }
  std::ofstream(fs::path(to) / "model.safetensors", std::ios::binary) << image.string();
  auto config = FolderJson::parse(testing::read_file(fs::path(to) / "config.json"));
  if (fp8) config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {kBlock, kBlock}}};
  std::ofstream(fs::path(to) / "config.json") << config;
}

TEST(DeepseekFolders, InFp8HaveTheValuesOfTheirScales) {
  const Scratch scratch;
  copy_with_fp8_latents(golden() / "deepseek2", scratch / "fp8", true);
  copy_with_fp8_latents(golden() / "deepseek2", scratch / "f32", false);
  make(scratch / "fp8", scratch / "fp8.gguf", "f32");
  make(scratch / "f32", scratch / "f32.gguf", "f32");
  expect_same_bytes(bytes_in(scratch / "fp8.gguf"), bytes_in(scratch / "f32.gguf"));
}

}  // namespace
}  // namespace millrace
