// Stacks of experts whose gate and up come in turns, against their definition.
#include "loader/interleaved_experts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "formats/e2m1.h"
#include "formats/format.h"

namespace millrace {
namespace {

struct StackedModel {
  std::vector<std::vector<uint8_t>> bytes;
  ModelFiles files;

  StackedModel() {
    files.kind = ModelFiles::Kind::huggingface;
    files.path = "m";
    files.architecture = "GptOssForCausalLM";
    bytes.reserve(16);  // tensors view these bytes
  }
  void add(const std::string& name, const std::string& type, std::vector<int64_t> dims, std::vector<uint8_t> data) {
    bytes.push_back(std::move(data));
    StoredTensor stored;
    stored.name = "model.layers.0.mlp.experts." + name;
    stored.type_name = type;
    stored.tensor.format = find_format_safetensors(type);
    stored.tensor.rank = static_cast<int>(dims.size());
    std::copy(dims.begin(), dims.end(), stored.tensor.dims.begin());
    stored.tensor.data = bytes.back().data();
    stored.tensor.bytes = std::ssize(bytes.back());
    files.tensor_index.emplace(stored.name, files.tensors.size());
    files.tensors.push_back(std::move(stored));
  }
  std::vector<float> values(const std::string& name) const {
    const StoredTensor* stored = files.find("model.layers.0.mlp.experts." + name);
    if (!stored) return {};
    std::vector<float> out(static_cast<size_t>(stored->tensor.values()));
    stored->tensor.format->decode(stored->tensor.data, out.data(), std::ssize(out));
    return out;
  }
};

std::vector<uint8_t> counted_floats(int64_t count) {
  std::vector<uint8_t> out(static_cast<size_t>(count) * 4);
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(out.data() + i * 4, &value, 4);
  }
  return out;
}

TEST(InterleavedExperts, FloatsAreTurnedAndSeparated) {
  constexpr int64_t kCount = 2, kWide = 3, kInner = 2;
  StackedModel model;
  model.add("gate_up_proj", "F32", {kCount, kWide, 2 * kInner}, counted_floats(kCount * kWide * 2 * kInner));
  model.add("gate_up_proj_bias", "F32", {kCount, 2 * kInner}, counted_floats(kCount * 2 * kInner));
  model.add("down_proj", "F32", {kCount, kInner, kWide}, counted_floats(kCount * kInner * kWide));
  model.add("down_proj_bias", "F32", {kCount, kWide}, counted_floats(kCount * kWide));
  ASSERT_TRUE(unpack_interleaved_experts(model.files).ok());
  EXPECT_EQ(model.files.tensors.size(), 6u);
  std::vector<float> gate, up, down;
  for (int64_t e = 0; e < kCount; ++e) {
    for (int64_t o = 0; o < kInner; ++o)
      for (int64_t i = 0; i < kWide; ++i) {
        gate.push_back(static_cast<float>((e * kWide + i) * 2 * kInner + 2 * o));
        up.push_back(gate.back() + 1);
      }
    for (int64_t o = 0; o < kWide; ++o)
      for (int64_t i = 0; i < kInner; ++i) down.push_back(static_cast<float>((e * kInner + i) * kWide + o));
  }
  EXPECT_EQ(model.values("gate_proj.weight"), gate);
  EXPECT_EQ(model.values("up_proj.weight"), up);
  EXPECT_EQ(model.values("down_proj.weight"), down);
  EXPECT_EQ(model.values("gate_proj.bias"), (std::vector<float>{0, 2, 4, 6}));
  EXPECT_EQ(model.values("up_proj.bias"), (std::vector<float>{1, 3, 5, 7}));
  EXPECT_EQ(model.values("down_proj.bias"), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

struct StackedBlocks {
  std::vector<uint8_t> codes, scales;
  StackedBlocks(int64_t blocks, uint8_t first_scale) {
    for (int64_t i = 0; i < blocks * 16; ++i) codes.push_back(static_cast<uint8_t>(i * 37 + 11));
    for (int64_t i = 0; i < blocks; ++i) scales.push_back(static_cast<uint8_t>(first_scale + i));
  }
  float value(int64_t row, int64_t cols, int64_t col) const {
    const int64_t at = row * cols + col;
    return e2m1_value(codes[static_cast<size_t>(at / 2)] >> (at % 2 * 4) & 15) *
           std::ldexp(1.0f, scales[static_cast<size_t>(at / 32)] - 127);
  }
};

TEST(InterleavedExperts, Mxfp4BlocksKeepEveryValue) {
  constexpr int64_t kCount = 2, kInner = 3, kCols = 64;
  const StackedBlocks stored(kCount * 2 * kInner * kCols / 32, 120);
  StackedModel model;
  model.add("gate_up_proj_blocks", "U8", {kCount, 2 * kInner, kCols / 32, 16}, stored.codes);
  model.add("gate_up_proj_scales", "U8", {kCount, 2 * kInner, kCols / 32}, stored.scales);
  ASSERT_TRUE(unpack_interleaved_experts(model.files).ok());
  EXPECT_EQ(model.files.tensors.size(), 2u);
  std::vector<float> gate, up;
  for (int64_t row = 0; row < kCount * 2 * kInner; ++row)
    for (int64_t c = 0; c < kCols; ++c) (row % 2 ? up : gate).push_back(stored.value(row, kCols, c));
  EXPECT_EQ(model.values("gate_proj.weight"), gate);
  EXPECT_EQ(model.values("up_proj.weight"), up);
}

TEST(InterleavedExperts, WrongShapesAreRefusedByName) {
  const auto refused = [](const std::function<void(StackedModel&)>& fill) {
    StackedModel model;
    fill(model);
    const auto done = unpack_interleaved_experts(model.files);
    return done.ok() ? std::string() : done.error().message;
  };
  const StackedBlocks four(4, 120), nan(4, 252);
  EXPECT_NE(refused([&](auto& m) {
              m.add("down_proj_blocks", "U8", {1, 4, 1, 16}, four.codes);
            }).find("down_proj_scales"),
            std::string::npos);
  EXPECT_NE(refused([&](auto& m) {
              m.add("down_proj_blocks", "U8", {1, 4, 1, 16}, four.codes);
              m.add("down_proj_scales", "U8", {1, 2, 2}, four.scales);
            }).find("down_proj_scales"),
            std::string::npos);
  EXPECT_NE(refused([&](auto& m) {
              m.add("down_proj_blocks", "U8", {1, 4, 1, 16}, nan.codes);
              m.add("down_proj_scales", "U8", {1, 4, 1}, nan.scales);
            }).find("scale 3 is NaN"),
            std::string::npos);
  EXPECT_NE(refused([](auto& m) {
              m.add("gate_up_proj", "F32", {1, 2, 3}, counted_floats(6));
            }).find("even number"),
            std::string::npos);
  EXPECT_NE(refused([](auto& m) {
              m.add("down_proj", "F32", {2, 3}, counted_floats(6));
            }).find("shape"),
            std::string::npos);
  EXPECT_NE(refused([](auto& m) {
              m.add("down_proj", "U8", {1, 2, 3}, std::vector<uint8_t>(6));
            }).find("type U8"),
            std::string::npos);
  EXPECT_NE(refused([](auto& m) {
              m.add("down_proj_bias", "F32", {1, 3}, counted_floats(3));
              m.add("down_proj.bias", "F32", {1, 3}, counted_floats(3));
            }).find("stored twice"),
            std::string::npos);
}

TEST(InterleavedExperts, OtherArchitecturesKeepTheirTensors) {
  StackedModel model;
  model.files.architecture = "MixtralForCausalLM";
  model.add("down_proj", "F32", {1, 2, 3}, counted_floats(6));
  ASSERT_TRUE(unpack_interleaved_experts(model.files).ok());
  EXPECT_FALSE(model.values("down_proj").empty());
}

}  // namespace
}  // namespace millrace
