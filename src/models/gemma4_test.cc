// How configurations of Gemma 4 and Gemma 3n are read: layers with sizes of their own, shared keys, and what is
// refused.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "models/arch.h"
#include "models/mixers/mixer.h"

namespace millrace {
namespace {

using GemmaJson = nlohmann::ordered_json;

Result<ArchSpec> read_gemma_spec(ModelFiles::Kind kind, const std::string& architecture, GemmaJson config) {
  ModelFiles files;
  files.kind = kind;
  files.path = "m";
  files.architecture = architecture;
  files.config = std::make_shared<const GemmaJson>(std::move(config));
  return read_arch_spec(files);
}

// The sizes of gemma-4-E2B: 35 layers, every fifth sees all keys, the last 20 store none.
GemmaJson e2b_config() {
  GemmaJson config = GemmaJson::parse(R"({"attention_bias": false, "attention_k_eq_v": false, "enable_moe_block": false,
    "final_logit_softcapping": 30.0, "global_head_dim": 512, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1536, "hidden_size_per_layer_input": 256, "intermediate_size": 6144,
    "max_position_embeddings": 131072, "model_type": "gemma4_text", "num_attention_heads": 8,
    "num_global_key_value_heads": null, "num_hidden_layers": 35, "num_key_value_heads": 1, "num_kv_shared_layers": 20,
    "rms_norm_eps": 1e-06, "rope_parameters": {
      "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
      "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
    "sliding_window": 512, "tie_word_embeddings": true, "use_bidirectional_attention": null,
    "use_double_wide_mlp": true, "vocab_size": 262144, "vocab_size_per_layer_input": 262144})");
  for (int64_t i = 0; i < 35; ++i)
    config["layer_types"].push_back((i + 1) % 5 == 0 ? "full_attention" : "sliding_attention");
  return config;
}

Result<ArchSpec> read_e2b(const char* key = nullptr, const GemmaJson& value = nullptr) {
  GemmaJson config = e2b_config();
  if (key) config[key] = value;
  return read_gemma_spec(ModelFiles::Kind::huggingface, "Gemma4ForCausalLM", std::move(config));
}

TEST(Gemma4, LayersThatShareKeysStoreNone) {
  const auto spec = read_e2b();
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  ASSERT_EQ(spec->layer_count(), 35);
  const std::vector<KvLayer> stored = layer_states(*spec);
  for (size_t i = 0; i < 35; ++i) {
    const bool full = i % 5 == 4, shares = i >= 15;
    const LayerSpec& layer = spec->layers[i];
    EXPECT_EQ(layer.kv_from, !shares ? -1 : full ? 14 : 13) << i;
    EXPECT_EQ(layer.stored_by(static_cast<int64_t>(i)), !shares ? static_cast<int64_t>(i) : full ? 14 : 13) << i;
    EXPECT_EQ(layer.head_dim, full ? 512 : 256) << i;
    EXPECT_EQ(layer.window, full ? 0 : 512) << i;
    EXPECT_EQ(layer.rope, full ? 0 : 1) << i;
    EXPECT_EQ(layer.hidden, shares ? 12288 : 6144) << i;
    EXPECT_EQ(stored[i].absent(), shares) << i;
    EXPECT_EQ(stored[i].window, layer.window) << i;
  }
  // 12 layers of one head of 256 dims, 3 of one of 512; keys and values in two bytes each.
  const KvLayout layout{find_format("f16"), 16, stored};
  EXPECT_EQ(layout.bytes_per_token(), (12 * 256 + 3 * 512) * 2 * 2);
  auto alone = read_e2b("num_kv_shared_layers", 0);
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  const KvLayout whole{find_format("f16"), 16, layer_states(*alone)};
  EXPECT_EQ(whole.bytes_per_token(), (28 * 256 + 7 * 512) * 2 * 2);
}

TEST(Gemma4, AQuarterOfTheFrequenciesOfLayersThatSeeAllKeysRotate) {
  for (const bool stated : {true, false}) {
    const auto spec = stated ? read_e2b() : read_e2b("rope_parameters");
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    ASSERT_EQ(spec->ropes.size(), 2u);
    EXPECT_EQ(spec->ropes[0].rotated, 512);
    EXPECT_EQ(spec->ropes[0].theta, 1000000.0);
    ASSERT_EQ(spec->ropes[0].long_factors.size(), 256u);
    EXPECT_EQ(spec->ropes[0].long_factors[63], 1.0f);
    EXPECT_GT(spec->ropes[0].long_factors[64], 1e29f);
    EXPECT_EQ(spec->ropes[1].rotated, 256);
    EXPECT_EQ(spec->ropes[1].theta, 10000.0);
    EXPECT_TRUE(spec->ropes[1].long_factors.empty());
  }
}

TEST(Gemma4, SizesOfLayersAreReadFromEitherForm) {
  GemmaJson config = e2b_config();
  config["attention_k_eq_v"] = true;
  config["num_global_key_value_heads"] = 2;
  config["num_key_value_heads"] = 4;
  const auto both = read_gemma_spec(ModelFiles::Kind::huggingface, "gemma4", config);
  ASSERT_TRUE(both.ok()) << both.error().message;
  for (const char* key : {"global_head_dim", "num_global_key_value_heads"}) config.erase(key);
  for (int64_t i = 4; i < 35; i += 5)
    config["per_layer_config"][std::to_string(i)] = {{"head_dim", 512}, {"num_key_value_heads", 2}};
  const auto listed = read_gemma_spec(ModelFiles::Kind::huggingface, "gemma4", config);
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  for (const ArchSpec* spec : {&*both, &*listed}) {
    EXPECT_TRUE(spec->keys_as_values);
    EXPECT_EQ(spec->layers[3].kv_heads, 4);
    EXPECT_EQ(spec->layers[4].kv_heads, 2);
    EXPECT_EQ(spec->layers[4].head_dim, 512);
  }
  config["per_layer_config"]["4"]["sliding_window"] = 3;
  const auto refused = read_gemma_spec(ModelFiles::Kind::huggingface, "gemma4", config);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("sliding_window: unknown field of one layer"), std::string::npos)
      << refused.error().message;
}

TEST(Gemma4, ExpertsRunBesideMlps) {
  GemmaJson config = e2b_config();
  config["enable_moe_block"] = true;
  config["num_experts"] = 128;
  config["top_k_experts"] = 8;
  config["moe_intermediate_size"] = 704;
  config["num_kv_shared_layers"] = 0;
  const auto spec = read_gemma_spec(ModelFiles::Kind::huggingface, "Gemma4ForCausalLM", config);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  for (const LayerSpec& layer : spec->layers) {
    EXPECT_TRUE(layer.moe && layer.experts.beside_mlp && layer.has_dense_mlp());
    EXPECT_EQ(layer.hidden, 6144);
    EXPECT_EQ(layer.experts.hidden, 704);
  }
}

TEST(Gemma4, WhatIsNotSupportedIsNamed) {
  const auto refused = [](const char* key, const GemmaJson& value) {
    const auto spec = read_e2b(key, value);
    return spec.ok() ? "" : spec.error().message;
  };
  EXPECT_EQ(refused("use_bidirectional_attention", "all"),
            "m/config.json: use_bidirectional_attention: tokens that see later ones");
  EXPECT_EQ(refused("use_bidirectional_attention", "vision"), "");
  EXPECT_EQ(refused("num_kv_shared_layers", 35),
            "m/config.json: layer 0 has no layer of its kind before layer 0 whose keys it could read");
  EXPECT_NE(refused("residual_multiplier", 0.5).find("residual_multiplier"), std::string::npos);

  GemmaJson keys = {{"gemma4.context_length", 128},
                    {"gemma4.embedding_length", 8},
                    {"gemma4.block_count", 2},
                    {"gemma4.attention.head_count", 2},
                    {"gemma4.feed_forward_length", {8, 16}},
                    {"gemma4.attention.head_count_kv", {2, 1}},
                    {"gemma4.attention.key_length", 8},
                    {"gemma4.attention.key_length_swa", 4},
                    {"gemma4.attention.value_length", 8},
                    {"gemma4.attention.sliding_window_pattern", {true, false}},
                    {"gemma4.vocab_size", 16}};
  const auto spec = read_gemma_spec(ModelFiles::Kind::gguf, "gemma4", keys);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->layers[0].hidden, 8);
  EXPECT_EQ(spec->layers[1].hidden, 16);
  EXPECT_EQ(spec->layers[1].kv_heads, 1);
  EXPECT_EQ(spec->layers[0].head_dim, 4);
  keys["gemma4.attention.head_count_kv"] = {2};
  EXPECT_EQ(read_gemma_spec(ModelFiles::Kind::gguf, "gemma4", keys).error().message,
            "m: attention.head_count_kv must have a number of at least 1 for each of 2 layers");
}

TEST(Gemma4, LayersThatShareKeysHaveTheSizesOfTheirSource) {
  GemmaJson keys = {{"gemma4.context_length", 128},
                    {"gemma4.embedding_length", 8},
                    {"gemma4.block_count", 3},
                    {"gemma4.attention.head_count", 2},
                    {"gemma4.feed_forward_length", 8},
                    {"gemma4.attention.head_count_kv", {2, 1, 1}},
                    {"gemma4.attention.key_length", 8},
                    {"gemma4.attention.key_length_swa", 4},
                    {"gemma4.attention.value_length", 8},
                    {"gemma4.attention.sliding_window_pattern", {false, true, true}},
                    {"gemma4.attention.shared_kv_layers", 1},
                    {"gemma4.vocab_size", 16}};
  const auto read = [&] { return read_gemma_spec(ModelFiles::Kind::gguf, "gemma4", keys); };
  const auto spec = read();
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->layers[2].kv_from, 1);
  keys["gemma4.attention.head_count_kv"] = {2, 1, 2};
  ASSERT_FALSE(read().ok());
  EXPECT_EQ(read().error().kind, ErrorKind::corrupt);
  EXPECT_EQ(read().error().message,
            "m: layer 2 has 2 KV heads with 4 dims of keys and 4 of values, and reads those of layer 1, which has 1 "
            "with 4 and 4");

  GemmaJson config = e2b_config();
  config["per_layer_config"] = {{"16", {{"num_key_value_heads", 2}}}};
  const auto own_heads = read_gemma_spec(ModelFiles::Kind::huggingface, "Gemma4ForCausalLM", config);
  ASSERT_FALSE(own_heads.ok());
  EXPECT_NE(own_heads.error().message.find("layer 16 has 2 KV heads"), std::string::npos) << own_heads.error().message;
}

// Gemma 3n with the layers of e2b_config().
GemmaJson gemma3n_config() {
  GemmaJson config = e2b_config();
  for (const char* key : {"attention_k_eq_v", "enable_moe_block", "global_head_dim", "num_global_key_value_heads",
                          "rope_parameters", "use_double_wide_mlp", "use_bidirectional_attention"})
    config.erase(key);
  config["model_type"] = "gemma3n_text";
  config["intermediate_size"] = GemmaJson(std::vector<int>(35, 8192));
  config["rope_theta"] = 1000000.0;
  config["rope_local_base_freq"] = 10000.0;
  config["altup_lr_multiplier"] = 1.0;
  return config;
}

Result<ArchSpec> read_gemma3n_spec(const GemmaJson& config) {
  return read_gemma_spec(ModelFiles::Kind::huggingface, "Gemma3nForCausalLM", config);
}

TEST(Gemma3n, SharesOfActivationsBecomeDeviations) {
  GemmaJson config = gemma3n_config();
  config["activation_sparsity_pattern"] = GemmaJson(std::vector<double>(35, 0.95));
  config["activation_sparsity_pattern"][34] = 0.0;
  const auto spec = read_gemma3n_spec(config);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_NEAR(spec->layers[0].gate_cut, 1.6448536f, 1e-5f);
  EXPECT_EQ(spec->layers[34].gate_cut, 0.0f);
  EXPECT_EQ(spec->streams, 4);
  EXPECT_EQ(spec->laurel_rank, 64);
  EXPECT_EQ(spec->layers[34].kv_from, 14);
  EXPECT_EQ(spec->layers[34].hidden, 8192);
  config["activation_sparsity_pattern"][0] = 0.5;
  EXPECT_FALSE(read_gemma3n_spec(config).ok());
}

TEST(Gemma3n, FoldersThatDoNotSayItShareTheKeysOfTheirLastFifteenLayers) {
  GemmaJson config = gemma3n_config();
  config.erase("num_kv_shared_layers");
  const auto whole = read_gemma3n_spec(config);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->layers[19].kv_from, -1);
  EXPECT_EQ(whole->layers[20].kv_from, 18);
  EXPECT_EQ(whole->layers[34].kv_from, 19);
  config["num_hidden_layers"] = 5;
  config["intermediate_size"] = 8192;
  for (size_t i = config["layer_types"].size(); i > 5; --i) config["layer_types"].erase(i - 1);
  const auto few = read_gemma3n_spec(config);
  ASSERT_TRUE(few.ok()) << few.error().message;
  for (const LayerSpec& layer : few->layers) EXPECT_EQ(layer.kv_from, -1);
}

}  // namespace
}  // namespace millrace
