// How configurations of Qwen3-Next and Qwen3.5 are read, and which variants are refused.
#include <gtest/gtest.h>

#include <memory>

#include "base/ordered_json.h"
#include "models/arch.h"
#include "models/layer_mixers.h"
#include "models/unread_tensors.h"

namespace millrace {
namespace {

using QwenJson = nlohmann::ordered_json;

Result<ArchSpec> read_qwen_next(ModelFiles::Kind kind, const std::string& architecture, QwenJson config) {
  ModelFiles files;
  files.kind = kind;
  files.path = "m";
  files.architecture = architecture;
  files.config = std::make_shared<const QwenJson>(std::move(config));
  return read_arch_spec(files);
}

// Qwen3-Next-80B-A3B's config.json, without names of tokens.
QwenJson qwen_next_config() {
  return QwenJson::parse(R"({"attention_bias": false, "attention_dropout": 0.0, "decoder_sparse_step": 1,
    "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 5120, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
    "max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_next",
    "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16, "num_experts": 512,
    "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2, "output_router_logits": false,
    "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000000,
    "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512, "tie_word_embeddings": false,
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

Result<ArchSpec> read_qwen_next_folder(const char* key = nullptr, const char* value = "null") {
  QwenJson config = qwen_next_config();
  if (key) config[key] = QwenJson::parse(value);
  return read_qwen_next(ModelFiles::Kind::huggingface, "Qwen3NextForCausalLM", std::move(config));
}

TEST(QwenNext, ThePublishedConfigurationIsRead) {
  const auto spec = read_qwen_next_folder();
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  ASSERT_EQ(spec->layer_count(), 48);
  for (size_t i = 0; i < 48; ++i) {
    const LayerSpec& layer = spec->layers[i];
    EXPECT_EQ(is_plain_attention(layer), i % 4 == 3) << i;
    EXPECT_EQ(layer.attention_gate, i % 4 == 3) << i;
    EXPECT_TRUE(layer.moe && layer.experts.shared_gate && layer.experts.normalize) << i;
  }
  EXPECT_EQ(spec->ropes[0].rotated, 64);
  EXPECT_EQ(spec->norm_offset, 1.0f);
  EXPECT_EQ(spec->qk_norm, QkNorm::head);
  EXPECT_FALSE(spec->layers[0].ssm.tiled);
  EXPECT_EQ(layer_state(spec->layers[0]).state_values, 3 * (2 * 16 * 128 + 32 * 128) + 32 * 128 * 128);
}

TEST(QwenNext, OtherLayersAndSizesAreNamed) {
  const auto refused = [](const char* key, const char* value) {
    const auto spec = read_qwen_next_folder(key, value);
    return spec.ok() ? "" : spec.error().message;
  };
  EXPECT_EQ(refused("layer_types", R"(["full_attention"])"), "m/config.json: layer_types has 1 entries for 48 layers");
  EXPECT_EQ(refused("linear_num_value_heads", "33"),
            "m: a gated delta net of 4224 values in 33 heads, 16 key heads of 128 dims, 4 taps");
  EXPECT_EQ(refused("use_sliding_window", "true"), "m/config.json: use_sliding_window: windows of attention");
  EXPECT_EQ(refused("sliding_window", "64"), "") << "windows are off";
  EXPECT_NE(refused("residual_multiplier", "0.5").find("residual_multiplier"), std::string::npos);
  EXPECT_FALSE(read_qwen_next_folder("attn_output_gate", "false")->layers[3].attention_gate);
  // The class's part of the rotated dims holds where a file states none.
  EXPECT_EQ(read_qwen_next_folder("partial_rotary_factor", "null")->ropes[0].rotated, 64);
  EXPECT_EQ(read_qwen_next_folder("partial_rotary_factor", "0.5")->ropes[0].rotated, 128);

  LayerSpec both = read_qwen_next_folder()->layers[3];
  both.mixers.push_back({&kMamba2Mixer});
  both.ssm = {.inner = 4, .state = 4, .taps = 2, .heads = 1, .groups = 1};
  EXPECT_EQ(mixers_problem(ArchSpec{}, both), "gates of attention in a layer with a further mixer");
}

// Mixtures of Qwen3.5 state no width of a dense MLP, and their layers one by one.
TEST(QwenNext, TheTextPartOfAMultimodalMixtureIsRead) {
  QwenJson text = qwen_next_config();
  text["model_type"] = "qwen3_5_moe_text";
  for (const char* key : {"intermediate_size", "partial_rotary_factor", "rope_theta", "rope_scaling"}) text.erase(key);
  text["num_hidden_layers"] = 3;
  text["layer_types"] = {"full_attention", "linear_attention", "linear_attention"};
  text["attn_output_gate"] = true;
  text["mtp_num_hidden_layers"] = 1;
  text["rope_parameters"] = {{"mrope_interleaved", true},
                             {"mrope_section", {11, 11, 10}},
                             {"partial_rotary_factor", 0.5},
                             {"rope_theta", 1000000},
                             {"rope_type", "default"}};
  const auto spec = read_qwen_next(ModelFiles::Kind::huggingface, "Qwen3_5MoeForConditionalGeneration",
                                   {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}}, {"text_config", text}});
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->arch, "qwen35moe");
  EXPECT_TRUE(is_plain_attention(spec->layers[0]));
  EXPECT_TRUE(keeps(spec->layers[1], StateKind::recurrent) && keeps(spec->layers[2], StateKind::recurrent));
  EXPECT_EQ(spec->ropes[0].rotated, 128);
  EXPECT_EQ(spec->ropes[0].theta, 1e6);
  const QwenJson folder = {{"model_type", "qwen3_5_moe"}, {"text_config", text}};
  const auto unnamed = read_qwen_next(ModelFiles::Kind::huggingface, "qwen3_5_moe", folder);
  ASSERT_TRUE(unnamed.ok()) << "a folder that names no class: " << unnamed.error().message;
  EXPECT_EQ(unnamed->arch, "qwen35moe");
  EXPECT_FALSE(read_qwen_next(ModelFiles::Kind::huggingface, "LlavaForConditionalGeneration", folder).ok());
}

TEST(QwenNext, TensorsOfOtherPartsAreCounted) {
  ModelFiles files;
  files.path = "m";
  for (const char* name : {"model.visual.blocks.0.norm1.weight", "model.language_model.layers.2.mlp.up_proj.weight",
                           "model.language_model.embed_tokens.weight"})
    files.tensors.push_back({.name = name});
  EXPECT_EQ(unread_tensors(files, 3), "m: ignores 1 tensors of vision and audio parts, because prompts are text");
  files.tensors.push_back({.name = "mtp.fc.weight"});
  files.tensors.push_back({.name = "model.language_model.layers.3.eh_proj.weight"});
  EXPECT_EQ(
      unread_tensors(files, 3),
      "m: ignores 1 tensors of vision and audio parts, because prompts are text; 2 tensors of layers that predict "
      "further tokens, which only the drafter mtp reads");
  files.tensors = {{.name = "blk.4.nextn.enorm.weight"}, {.name = "blk.3.attn_norm.weight"}};
  EXPECT_EQ(unread_tensors(files, 4),
            "m: ignores 1 tensors of layers that predict further tokens, which only the drafter mtp reads");
  EXPECT_EQ(unread_tensors(files, 5), "");
  files.tensors = {{.name = "audio_tower.layers.9.norm.weight"},
                   {.name = "model.audio_tower.conformer.7.norm.weight"},
                   {.name = "a.blk.8.attn_q.weight"},
                   {.name = "model.embed_vision.embedding_projection.weight"},
                   {.name = "model.embed_audio.embedding_projection.weight"},
                   {.name = "altup_proj.7.weight"}};
  EXPECT_EQ(unread_tensors(files, 2), "m: ignores 5 tensors of vision and audio parts, because prompts are text");
  files.tensors = {{.name = "language_model.model.layers.2.mlp.up_proj.weight"}};
  EXPECT_EQ(unread_tensors(files, 2),
            "m: ignores 1 tensors of layers that predict further tokens, which only the drafter mtp reads");
  EXPECT_EQ(unread_tensors(files, 3), "");
}

TEST(QwenNext, GgufFilesListTheirLayers) {
  const QwenJson keys = {
      {"qwen35.context_length", 128},     {"qwen35.embedding_length", 8},     {"qwen35.block_count", 5},
      {"qwen35.nextn_predict_layers", 1}, {"qwen35.attention.head_count", 2}, {"qwen35.feed_forward_length", 8},
      {"qwen35.rope.dimension_count", 2}, {"qwen35.ssm.conv_kernel", 4},      {"qwen35.ssm.state_size", 4},
      {"qwen35.ssm.group_count", 1},      {"qwen35.ssm.time_step_rank", 2},   {"qwen35.ssm.inner_size", 8},
      {"qwen35.vocab_size", 16}};
  const auto spec = read_qwen_next(ModelFiles::Kind::gguf, "qwen35", keys);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  ASSERT_EQ(spec->layer_count(), 4) << "the layer of predictions is none of the model's";
  EXPECT_TRUE(is_plain_attention(spec->layers[3]));
  EXPECT_TRUE(spec->layers[0].ssm.tiled);
  EXPECT_EQ(spec->norm_offset, 0.0f);

  QwenJson listed = keys;
  listed["qwen35.attention.recurrent_layers"] = {false, true, true, false, false};
  const auto other = read_qwen_next(ModelFiles::Kind::gguf, "qwen35", listed);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_TRUE(is_plain_attention(other->layers[0]) && is_plain_attention(other->layers[3]));
  EXPECT_TRUE(keeps(other->layers[1], StateKind::recurrent) && keeps(other->layers[2], StateKind::recurrent));
  listed["qwen35.attention.recurrent_layers"] = {true};
  EXPECT_EQ(read_qwen_next(ModelFiles::Kind::gguf, "qwen35", listed).error().message,
            "m: attention.recurrent_layers must have an entry for each of 5 blocks");
}

}  // namespace
}  // namespace millrace
