// Conversion of Gemma 4 and of models with other mixers than attention: within a file kind, and from folders to GGUF
// files where a family permits it. The scripts that made the golden models wrote both of their files.
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

class FamilyFolders : public ::testing::TestWithParam<const char*> {};

TEST_P(FamilyFolders, BecomeTheirGgufFiles) {
  const std::string name = GetParam();
  const Scratch scratch;
  const auto report = convert(golden() / name, scratch / "out.gguf");
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const std::string& left : report->left_out)
    EXPECT_TRUE(left.starts_with("mtp.") || left.find("vis") != std::string::npos) << left;
  const auto written = values_in(scratch / "out.gguf"), expected = values_in(golden() / name / "model.gguf");
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
                                           "gemma4_e", "gemma4_moe"),
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
  const std::pair<const char*, const char*> refused[] = {{"mamba/model.gguf", "convert it to a GGUF file"},
                                                         {"qwen35/model.gguf", "convert it to a GGUF file"},
                                                         {"falcon_h1/model.gguf", "convert it to a GGUF file"},
                                                         {"deepseek2/model.gguf", "convert it to a GGUF file"},
                                                         {"falcon_h1", "convert it to a folder"},
                                                         {"deepseek3", "convert it to a folder"}};
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
