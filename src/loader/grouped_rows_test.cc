// Folders that store the rows of several matrices between each other, against a plain definition.
#include "loader/grouped_rows.h"

#include <gtest/gtest.h>

#include "base/ordered_json.h"
#include "formats/format.h"

namespace millrace {
namespace {

using GroupTestJson = nlohmann::ordered_json;

GroupTestJson internlm2_config(int64_t heads, int64_t kv_heads) {
  return {{"hidden_size", 4 * heads}, {"num_attention_heads", heads}, {"num_key_value_heads", kv_heads}};
}

// A model whose matrix has the number of its row in each value.
struct GroupedModel {
  std::vector<float> matrix, bias;
  ModelFiles files;

  GroupedModel(int64_t rows, int64_t cols, const std::string& name = "model.layers.0.attention.wqkv") {
    for (int64_t row = 0; row < rows; ++row) {
      matrix.insert(matrix.end(), static_cast<size_t>(cols), static_cast<float>(row));
      bias.push_back(static_cast<float>(row));
    }
    files.kind = ModelFiles::Kind::huggingface;
    files.path = "m";
    files.architecture = "InternLM2ForCausalLM";
    add(name + ".weight", 2, {rows, cols, 1, 1}, matrix);
    add(name + ".bias", 1, {rows, 1, 1, 1}, bias);
    add("model.norm.weight", 1, {1, 1, 1, 1}, bias);
  }
  void add(const std::string& name, int rank, std::array<int64_t, 4> dims, const std::vector<float>& values) {
    StoredTensor stored;
    stored.name = name;
    stored.type_name = "F32";
    stored.tensor = {find_format("f32"), rank, dims, reinterpret_cast<const uint8_t*>(values.data()),
                     dims[0] * dims[1] * 4};
    files.tensor_index.emplace(name, files.tensors.size());
    files.tensors.push_back(stored);
  }
  std::vector<float> first_values(const std::string& name) const {
    const StoredTensor* stored = files.find(name);
    if (!stored) return {};
    const auto* values = reinterpret_cast<const float*>(stored->tensor.data);
    std::vector<float> out;
    const int64_t cols = stored->tensor.rank == 1 ? 1 : stored->tensor.cols();
    for (int64_t row = 0; row < stored->tensor.dims[0]; ++row) out.push_back(values[row * cols]);
    return out;
  }
};

TEST(GroupedRows, InternLm2InterleavesByKvHead) {
  GroupedModel model(2 * (3 + 2) * 4, 24);  // six heads of 4, three to a KV head
  ASSERT_TRUE(unpack_grouped_rows(model.files, internlm2_config(6, 2)).ok());
  EXPECT_EQ(model.files.tensors.size(), 7u);
  EXPECT_EQ(model.files.find("model.layers.0.attention.wqkv.weight"), nullptr);
  std::vector<float> q, k, v;
  for (int group = 0; group < 2; ++group)
    for (int row = 0; row < 20; ++row)
      (row < 12 ? q : row < 16 ? k : v).push_back(static_cast<float>(20 * group + row));
  for (const char* kind : {".weight", ".bias"}) {
    EXPECT_EQ(model.first_values(std::string("model.layers.0.attention.wq") + kind), q) << kind;
    EXPECT_EQ(model.first_values(std::string("model.layers.0.attention.wk") + kind), k) << kind;
    EXPECT_EQ(model.first_values(std::string("model.layers.0.attention.wv") + kind), v) << kind;
  }
  EXPECT_EQ(model.files.find("model.layers.0.attention.wq.weight")->tensor.cols(), 24);
  EXPECT_NE(model.files.find("model.norm.weight"), nullptr);
}

// Queries, keys and values become one matrix, in this order; the values' gates another.
TEST(GroupedRows, Qwen3NextInterleavesByKeyHead) {
  GroupedModel model(2 * (3 + 3 + 4 + 4), 8, "model.layers.0.linear_attn.in_proj_qkvz");  // two value heads of 2 each
  model.files.architecture = "Qwen3NextForCausalLM";
  const GroupTestJson config = {{"linear_num_key_heads", 2},
                                {"linear_num_value_heads", 4},
                                {"linear_key_head_dim", 3},
                                {"linear_value_head_dim", 2}};
  ASSERT_TRUE(unpack_grouped_rows(model.files, config).ok());
  EXPECT_EQ(model.files.tensors.size(), 5u);
  EXPECT_EQ(model.first_values("model.layers.0.linear_attn.in_proj_qkv.weight"),
            (std::vector<float>{0, 1, 2, 14, 15, 16, 3, 4, 5, 17, 18, 19, 6, 7, 8, 9, 20, 21, 22, 23}));
  EXPECT_EQ(model.first_values("model.layers.0.linear_attn.in_proj_z.weight"),
            (std::vector<float>{10, 11, 12, 13, 24, 25, 26, 27}));

  GroupTestJson odd = config;
  odd["linear_num_value_heads"] = 5;
  GroupedModel other(28, 8, "model.layers.0.linear_attn.in_proj_qkvz");
  other.files.architecture = "Qwen3NextForCausalLM";
  EXPECT_EQ(unpack_grouped_rows(other.files, odd).error().message,
            "m/config.json: 5 value heads cannot share 2 key heads");
}

TEST(GroupedRows, OtherArchitecturesAreLeftAlone) {
  GroupedModel model(40, 24);
  model.files.architecture = "LlamaForCausalLM";
  ASSERT_TRUE(unpack_grouped_rows(model.files, internlm2_config(6, 2)).ok());
  EXPECT_NE(model.files.find("model.layers.0.attention.wqkv.weight"), nullptr);
  EXPECT_EQ(model.files.tensors.size(), 3u);
}

TEST(GroupedRows, WhatCannotBeTakenApartIsNamed) {
  const auto refusal = [](GroupedModel& model, const GroupTestJson& config) {
    const auto unpacked = unpack_grouped_rows(model.files, config);
    return unpacked.ok() ? "" : unpacked.error().message;
  };
  GroupedModel rows(39, 24);
  EXPECT_EQ(refusal(rows, internlm2_config(6, 2)),
            "m: tensor model.layers.0.attention.wqkv.weight has 39 rows, the model needs 2 groups of 20");
  GroupedModel heads(40, 24);
  EXPECT_EQ(refusal(heads, internlm2_config(6, 4)), "m/config.json: 6 query heads cannot share 4 key and value heads");
  EXPECT_EQ(refusal(heads, {{"hidden_size", 24}}), "m/config.json: num_attention_heads is missing");
  EXPECT_EQ(refusal(heads, {{"hidden_size", 24}, {"num_attention_heads", 0}}),
            "m/config.json: num_attention_heads must be a whole number from 1 to 1048576, is 0");
  GroupedModel order(40, 24);
  order.add("model.layers.0.attention.wqkv.input_order", 1, {1, 1, 1, 1}, order.bias);
  EXPECT_EQ(refusal(order, internlm2_config(6, 2)),
            "m: tensor model.layers.0.attention.wqkv.input_order has type F32: its rows belong to several matrices, "
            "and cannot be separated");
  GroupedModel twice(40, 24);
  twice.add("model.layers.0.attention.wk.weight", 1, {1, 1, 1, 1}, twice.bias);
  EXPECT_EQ(refusal(twice, internlm2_config(6, 2)),
            "m: tensor model.layers.0.attention.wk.weight is stored twice, alone and among the rows of another");
}

}  // namespace
}  // namespace millrace
