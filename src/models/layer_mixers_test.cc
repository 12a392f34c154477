// Layers with several mixers: what they keep, which lists are refused, and what configurations of Falcon-H1 say.
#include "models/layer_mixers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>

#include "base/ordered_json.h"
#include "models/arch.h"

namespace millrace {
namespace {

LayerSpec parallel_layer() {
  LayerSpec layer;
  layer.mixers = {{&kMamba2Mixer, 0.5f}, {&kAttentionMixer, 2.0f}};
  layer.heads = 4;
  layer.kv_heads = 2;
  layer.head_dim = layer.value_dim = 8;
  layer.ssm = {.inner = 12, .state = 5, .taps = 3, .heads = 3, .groups = 1};
  return layer;
}

TEST(LayerMixers, ALayerKeepsWhatEachOfItsMixersKeeps) {
  const LayerSpec both = parallel_layer();
  EXPECT_TRUE(keeps(both, StateKind::keys));
  EXPECT_TRUE(keeps(both, StateKind::recurrent));
  EXPECT_FALSE(keeps(both, StateKind::latent));
  EXPECT_FALSE(is_plain_attention(both));
  constexpr int64_t kState = 2 * (12 + 2 * 5) + 12 * 5;  // earlier inputs of x, B and C; the heads' states
  const KvLayer kept = layer_state(both);
  EXPECT_EQ(kept.kv_heads, 2);
  EXPECT_EQ(kept.head_dim, 8);
  EXPECT_EQ(kept.heads_each, 2);
  EXPECT_EQ(kept.state_values, kState);

  LayerSpec turned = both;
  std::swap(turned.mixers[0], turned.mixers[1]);
  EXPECT_EQ(layer_state(turned).state_values, kState);
  EXPECT_EQ(layer_state(turned).kv_heads, 2);

  LayerSpec attention = both;
  attention.mixers = {{}};
  EXPECT_TRUE(is_plain_attention(attention));
  EXPECT_FALSE(keeps(attention, StateKind::recurrent));
  EXPECT_EQ(layer_state(attention).state_values, 0);

  ArchSpec spec;
  spec.layers = {attention, both};
  EXPECT_TRUE(keeps(spec, StateKind::recurrent));
  spec.layers.pop_back();
  EXPECT_FALSE(keeps(spec, StateKind::recurrent));
}

TEST(LayerMixers, ListsAndSizesAreChecked) {
  const ArchSpec spec;
  const auto problem = [&](const auto& change) {
    LayerSpec layer = parallel_layer();
    change(layer);
    return mixers_problem(spec, layer);
  };
  EXPECT_EQ(problem([](LayerSpec&) {}), "");
  EXPECT_EQ(problem([](LayerSpec& layer) { layer.mixers.clear(); }), "a layer of 0 mixers, 0 of them attention");
  EXPECT_EQ(problem([](LayerSpec& layer) { layer.mixers[0] = {}; }), "a layer of 2 mixers, 2 of them attention");
  EXPECT_EQ(problem([](LayerSpec& layer) { layer.mixers[1].mixer = &kLatentMixer; }),
            "a layer of 2 mixers, 0 of them attention");
  EXPECT_EQ(problem([](LayerSpec& layer) { layer.mixers[0].scale = INFINITY; }),
            "the output of the mixer mamba2 times inf");
  EXPECT_EQ(problem([](LayerSpec& layer) { layer.kv_heads = 3; }), "4 query heads cannot share 3 KV heads");
  EXPECT_EQ(problem([](LayerSpec& layer) { layer.ssm.groups = 2; }),
            "a state space of 12 channels in 3 heads and 2 groups, 5 values, 3 taps");
  EXPECT_EQ(problem([](LayerSpec& layer) { layer.ssm.scales[3] = NAN; }), "a factor of the state space's input is nan");
}

// Falcon-H1-0.5B as published, without what the file does not need.
constexpr const char* kFalconConfig = R"({"architectures": ["FalconH1ForCausalLM"], "attention_bias": false,
    "attention_in_multiplier": 1.0, "attention_out_multiplier": 0.9375, "attn_layer_indices": null,
    "embedding_multiplier": 5.656854249492381, "head_dim": 64, "hidden_act": "silu", "hidden_size": 1024,
    "intermediate_size": 2048, "key_multiplier": 0.39062499999999994, "lm_head_multiplier": 0.0390625,
    "mamba_chunk_size": 128, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_ssm": 1536,
    "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 24,
    "mamba_norm_before_gate": false, "mamba_proj_bias": false, "mamba_rms_norm": false, "mamba_use_mlp": true,
    "max_position_embeddings": 16384, "mlp_bias": false, "mlp_multipliers": [0.8838834764831844, 0.5859375],
    "model_type": "falcon_h1", "num_attention_heads": 8, "num_hidden_layers": 36, "num_key_value_heads": 2,
    "num_logits_to_keep": 1, "projectors_bias": false, "rms_norm_eps": 1e-5, "rope_scaling": null,
    "rope_theta": 100000000000.0, "ssm_in_multiplier": 1.25,
    "ssm_multipliers": [0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
    "ssm_out_multiplier": 0.23570226039551587, "tie_word_embeddings": false, "time_step_max": 0.1,
    "time_step_min": 0.001, "vocab_size": 32784})";

Result<ArchSpec> read_falcon(const char* key = nullptr, const char* value = "null") {
  ModelFiles files;
  files.kind = ModelFiles::Kind::huggingface;
  files.path = "m";
  files.architecture = "FalconH1ForCausalLM";
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(kFalconConfig);
  if (key) config[key] = nlohmann::ordered_json::parse(value);
  files.config = std::make_shared<const nlohmann::ordered_json>(std::move(config));
  return read_arch_spec(files);
}

TEST(FalconH1, ThePublishedConfigurationIsRead) {
  const auto spec = read_falcon();
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->layer_count(), 36);
  const LayerSpec& layer = spec->layers[35];
  EXPECT_EQ(layer.mixers, (std::vector<LayerMixer>{{&kMamba2Mixer, 0.23570226f}, {&kAttentionMixer, 0.9375f}}));
  EXPECT_EQ(layer.ssm.inner, 1536);
  EXPECT_EQ(layer.ssm.heads, 24);
  EXPECT_FLOAT_EQ(layer.ssm.scales[0], 1.25f * 0.35355339f);
  EXPECT_FLOAT_EQ(layer.ssm.scales[3], 1.25f * 0.5f);
  EXPECT_FLOAT_EQ(spec->attention_scale, 0.390625f / 8);
  EXPECT_FLOAT_EQ(spec->embedding_scale, 5.6568542f);
  EXPECT_FLOAT_EQ(spec->logit_scale, 0.0390625f);
  EXPECT_FLOAT_EQ(spec->gate_scale, 0.88388348f);
  EXPECT_FLOAT_EQ(spec->mlp_scale, 0.5859375f);
  EXPECT_EQ(spec->ropes[0].theta, 1e11);
  EXPECT_EQ(layer_state(layer).state_values, 3 * (1536 + 2 * 128) + 1536 * 128);
}

TEST(FalconH1, VariantsThatItDoesNotRunAreNamed) {
  const auto refused = [](const char* key, const char* value) {
    const auto spec = read_falcon(key, value);
    return spec.ok() ? "" : spec.error().message;
  };
  for (const char* bias : {"attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"})
    EXPECT_EQ(refused(bias, "true"), std::string("m/config.json: ") + bias + ": biases of matrices");
  EXPECT_EQ(refused("hidden_act", "\"gelu\""), "m/config.json: hidden_act 'gelu'");
  EXPECT_EQ(refused("mamba_norm_before_gate", "true"), "") << "without a norm it changes nothing";
  EXPECT_EQ(refused("time_step_limit", "[0.001, 0.1]"), "m/config.json: time_step_limit: limits of step sizes");
  EXPECT_EQ(refused("time_step_limit", "[0.0, 1e38]"), "");
  EXPECT_EQ(refused("mamba_d_head", "32"), "m/config.json: mamba_d_head: 24 heads of 32 are not mamba_d_ssm 1536");
  EXPECT_EQ(refused("mamba_d_head", "\"auto\""), "");
  EXPECT_EQ(refused("mlp_multipliers", "[1.0]"), "m/config.json: mlp_multipliers must have 2 numbers, has 1");
  EXPECT_EQ(refused("mamba_n_heads", "25"), "m/config.json: mamba_d_head: 25 heads of 64 are not mamba_d_ssm 1536");
  EXPECT_NE(refused("residual_multiplier", "0.5").find("residual_multiplier"), std::string::npos);
  EXPECT_TRUE(read_falcon("mamba_rms_norm", "true")->layers[0].ssm.gated_norm);
}

}  // namespace
}  // namespace millrace
