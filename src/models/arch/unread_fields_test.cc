// Which fields of whole configs are read, and which are refused by name. The configs have the fields and the values of
// published ones, as Transformers 4 and 5 save them.
#include "models/arch/unread_fields.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/ordered_json.h"
#include "models/arch.h"

namespace millrace {
namespace {

using WholeConfig = nlohmann::ordered_json;

Result<ArchSpec> read_whole_config(const char* arch, const WholeConfig& config) {
  ModelFiles files;
  files.kind = ModelFiles::Kind::huggingface;
  files.path = "m";
  files.architecture = arch;
  files.config = std::make_shared<const WholeConfig>(config);
  return read_arch_spec(files);
}

Result<ArchSpec> read_gguf_keys(const char* arch, const char* keys) {
  WholeConfig config = WholeConfig::parse(keys);
  const WholeConfig common = WholeConfig::parse(R"({"context_length": 4096, "embedding_length": 64, "block_count": 6,
           "feed_forward_length": 96, "attention.head_count": 4, "attention.head_count_kv": 2, "vocab_size": 32,
           "attention.layer_norm_rms_epsilon": 1e-6})");
  WholeConfig whole;
  for (const auto& [key, value] : common.items()) whole[std::string(arch) + "." + key] = value;
  for (const auto& [key, value] : config.items()) whole[std::string(arch) + "." + key] = value;
  ModelFiles files;
  files.path = "m.gguf";
  files.architecture = arch;
  files.config = std::make_shared<const WholeConfig>(std::move(whole));
  return read_arch_spec(files);
}

// What every file of Transformers states in addition.
constexpr const char* kSavedAlways = R"({"attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": [2, 3],
    "pad_token_id": null, "initializer_range": 0.02, "use_cache": true, "tie_word_embeddings": false,
    "_name_or_path": "m", "transformers_version": "4.57.1", "torch_dtype": "bfloat16", "chunk_size_feed_forward": 0,
    "temperature": 0.7, "output_router_logits": false, "id2label": {"0": "LABEL_0"}, "problem_type": null,
    "task_specific_params": null, "quantization_config": {"quant_method": "none", "scale_bits": 8},
    "router_aux_loss_coef": 0.001, "vocab_size": 32000, "hidden_act": "silu"})";

struct SavedFamily {
  const char* name;
  const char* arch;
  const char* fields;
  const char* four;  // in addition, as Transformers 4 saves it
  const char* five;
};

const SavedFamily kFamilies[] = {
    {"Llama 3.1 8B", "LlamaForCausalLM",
     R"({"attention_bias": false, "mlp_bias": false, "hidden_size": 4096, "intermediate_size": 14336, "head_dim": 128,
         "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32,
         "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-5})",
     R"({"rope_theta": 500000.0, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192, "rope_type": "llama3"}})",
     R"({"rope_parameters": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500000.0,
         "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "dtype": "bfloat16"})"},
    {"Qwen2.5 7B", "Qwen2ForCausalLM",
     R"({"hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
         "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
         "use_sliding_window": false, "use_mrope": false})",
     R"({"sliding_window": 131072, "rope_theta": 1000000.0})",
     R"({"sliding_window": null, "layer_types": ["full_attention"],
         "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}})"},
    {"Qwen3 8B", "Qwen3ForCausalLM",
     R"({"attention_bias": false, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
         "max_position_embeddings": 40960, "max_window_layers": 36, "num_attention_heads": 32, "num_hidden_layers": 36,
         "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "sliding_window": null, "use_sliding_window": false})",
     R"({"rope_scaling": null, "rope_theta": 1000000})", R"({"rope_parameters": {"rope_theta": 1000000}})"},
    {"Qwen3 30B A3B", "Qwen3MoeForCausalLM",
     R"({"attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048,
         "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
         "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
         "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
         "sliding_window": null, "use_sliding_window": false})",
     R"({"rope_scaling": null, "rope_theta": 1000000.0})", R"({"rope_parameters": {"rope_theta": 1000000.0}})"},
    {"Mistral 7B v0.1", "MistralForCausalLM",
     R"({"hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
         "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "sliding_window": 4096})",
     R"({"rope_theta": 10000.0})", R"({"head_dim": 128, "rope_parameters": {"rope_theta": 10000.0}})"},
    {"Mixtral 8x7B", "MixtralForCausalLM",
     R"({"hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
         "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
         "rms_norm_eps": 1e-5, "router_jitter_noise": 0.0, "sliding_window": null})",
     R"({"rope_theta": 1000000.0})", R"({"rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}})"},
    {"Gemma 2 9B", "Gemma2ForCausalLM",
     R"({"attention_bias": false, "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid",
         "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
         "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 3584, "intermediate_size": 14336,
         "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 2, "num_key_value_heads": 8,
         "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "sliding_window": 4096})",
     R"({"rope_theta": 10000.0, "sliding_window_size": 4096})",
     R"({"layer_types": ["sliding_attention", "full_attention"], "use_bidirectional_attention": null,
         "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}})"},
    {"Gemma 3 4B", "Gemma3ForConditionalGeneration",
     R"({"attention_bias": false, "attn_logit_softcapping": null, "final_logit_softcapping": null, "head_dim": 256,
         "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2560, "intermediate_size": 10240,
         "max_position_embeddings": 131072, "num_attention_heads": 8, "num_hidden_layers": 6, "num_key_value_heads": 4,
         "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "sliding_window": 1024,
         "use_bidirectional_attention": false})",
     R"({"rope_local_base_freq": 10000.0, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
         "rope_theta": 1000000.0, "sliding_window_pattern": 6})",
     R"({"layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
                         "sliding_attention", "full_attention"], "_sliding_window_pattern": 6,
         "rope_parameters": {"full_attention": {"factor": 8.0, "rope_theta": 1000000.0, "rope_type": "linear"},
                             "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}})"},
    {"Phi 4 mini", "Phi3ForCausalLM",
     R"({"attention_bias": false, "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "embd_pdrop": 0.0,
         "full_attn_mod": 1, "hidden_size": 3072, "intermediate_size": 8192, "interpolate_factor": 1,
         "lm_head_bias": false, "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 24,
         "num_hidden_layers": 32, "num_key_value_heads": 8, "original_max_position_embeddings": 4096,
         "resid_pdrop": 0.0, "rms_norm_eps": 1e-5, "sliding_window": 262144})",
     R"({"partial_rotary_factor": 0.75, "rope_theta": 10000.0})",
     R"({"rope_parameters": {"partial_rotary_factor": 0.75, "rope_theta": 10000.0, "rope_type": "default"}})"},
    {"OLMo 2 7B", "Olmo2ForCausalLM",
     R"({"attention_bias": false, "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
         "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-6})",
     R"({"rope_scaling": null, "rope_theta": 500000})", R"({"rope_parameters": {"rope_theta": 500000}})"},
    {"SmolLM3 3B", "SmolLM3ForCausalLM",
     R"({"attention_bias": false, "hidden_size": 2048, "intermediate_size": 11008, "layer_types": ["full_attention"],
         "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": false, "no_rope_layer_interval": 4,
         "no_rope_layers": [1, 1, 1, 0], "num_attention_heads": 16, "num_hidden_layers": 4, "num_key_value_heads": 4,
         "pretraining_tp": 2, "rms_norm_eps": 1e-6, "sliding_window": null, "use_sliding_window": false})",
     R"({"rope_scaling": null, "rope_theta": 5000000.0})", R"({"rope_parameters": {"rope_theta": 5000000.0}})"},
    {"DeepSeek V3", "DeepseekV3ForCausalLM",
     R"({"attention_bias": false, "aux_loss_alpha": 0.001, "ep_size": 1, "first_k_dense_replace": 3,
         "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
         "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
         "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128, "num_experts_per_tok": 8,
         "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "pretraining_tp": 1,
         "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-6,
         "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true, "topk_group": 4,
         "topk_method": "noaux_tc", "v_head_dim": 128})",
     R"({"rope_theta": 10000, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
         "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"}})",
     R"({"head_dim": 64, "qk_head_dim": 192, "rope_interleave": true, "rope_parameters": {"beta_fast": 32,
         "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "rope_theta": 10000,
         "original_max_position_embeddings": 4096, "rope_type": "yarn", "type": "yarn"}})"},
};

WholeConfig whole_config(const SavedFamily& family, const char* version) {
  WholeConfig config = WholeConfig::parse(kSavedAlways);
  config.update(WholeConfig::parse(family.fields));
  config.update(WholeConfig::parse(version));
  return config;
}

TEST(UnreadFields, ConfigsOfCurrentFamiliesAreReadFromBothVersions) {
  for (const SavedFamily& family : kFamilies) {
    const auto four = read_whole_config(family.arch, whole_config(family, family.four));
    const auto five = read_whole_config(family.arch, whole_config(family, family.five));
    ASSERT_TRUE(four.ok()) << family.name << ": " << four.error().message;
    ASSERT_TRUE(five.ok()) << family.name << ": " << five.error().message;
    EXPECT_EQ(four->layers, five->layers) << family.name;
    EXPECT_EQ(four->attention_scale, five->attention_scale) << family.name;
    ASSERT_EQ(four->ropes.size(), five->ropes.size()) << family.name;
    for (size_t i = 0; i < four->ropes.size(); ++i) EXPECT_EQ(four->ropes[i].theta, five->ropes[i].theta);
    EXPECT_EQ(four->ropes[0], five->ropes[0]) << family.name;
  }
}

// Multimodal files state the fields of the language model in an object.
TEST(UnreadFields, FieldsOfTheTextModelAreChecked) {
  const SavedFamily& gemma = kFamilies[7];
  WholeConfig config;
  config["text_config"] = whole_config(gemma, gemma.five);
  config["mm_tokens_per_image"] = 256;
  EXPECT_TRUE(read_whole_config(gemma.arch, config).ok());
  config["text_config"]["residual_multiplier"] = 0.5;
  const auto refused = read_whole_config(gemma.arch, config);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("residual_multiplier"), std::string::npos);
}

// gemma-3-27b-it and gemma-3-4b-it as published: what they do not state is the default of Transformers' class.
TEST(UnreadFields, PublishedGemma3HasTheDefaultsOfItsClass) {
  WholeConfig config = WholeConfig::parse(R"({"boi_token_index": 255999, "text_config": {"hidden_size": 2560,
      "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}})");
  const auto small = read_whole_config("Gemma3ForConditionalGeneration", config);
  ASSERT_TRUE(small.ok()) << small.error().message;
  EXPECT_EQ(small->vocab, 262208);
  EXPECT_EQ(small->heads, 8);
  EXPECT_EQ(small->kv_heads, 4);
  EXPECT_EQ(small->head_dim, 256);
  EXPECT_EQ(small->context, 131072);
  EXPECT_EQ(small->layer_count(), 34);
  EXPECT_EQ(small->layers[0].window, 1024);
  EXPECT_EQ(small->layers[5].window, 0);
  EXPECT_EQ(small->ropes[0].theta, 1e6);
  EXPECT_EQ(small->ropes[1].theta, 1e4);
  const auto differing = WholeConfig::parse(R"({"head_dim": 128, "num_attention_heads": 32, "num_key_value_heads": 16,
      "query_pre_attn_scalar": 168})");
  config["text_config"].update(differing);
  const auto large = read_whole_config("Gemma3ForConditionalGeneration", config);
  ASSERT_TRUE(large.ok()) << large.error().message;
  EXPECT_EQ(large->heads, 32);
  EXPECT_FLOAT_EQ(large->attention_scale, static_cast<float>(1.0 / std::sqrt(168.0)));
}

// Fields of families that other programs save under another family's class, and of families to come.
TEST(UnreadFields, FieldsThatChangeNumbersAreRefusedByNameInEveryFamily) {
  const std::pair<const char*, const char*> fields[] = {
      {"embedding_multiplier", "12.0"},
      {"logits_scaling", "8.0"},
      {"attention_multiplier", "0.015625"},
      {"residual_multiplier", "0.22"},
      {"scale_emb", "12"},
      {"scale_depth", "1.4"},
      {"dim_model_base", "256"},
      {"logit_scale", "0.0625"},
      {"use_qk_norm", "true"},
      {"qk_layernorm", "true"},
      {"norm_type", "\"layernorm\""},
      {"attn_output_gate", "true"},
      {"router_logit_softcapping", "30.0"},
      {"clip_qkv", "8.0"},
      {"swiglu_limit", "7.0"},
      {"attention_chunk_size", "64"},
      {"attention_sink_bias", "true"},
      {"rope_percentage", "0.5"},
      {"rotary_dim", "2"},
      {"position_embedding_type", "\"alibi\""},
      {"parallel_attn", "true"},
      {"use_parallel_residual", "true"},
      {"num_kv_shared_layers", "2"},
      {"hidden_size_per_layer_input", "256"},
      {"attention_k_eq_v", "true"},
      {"is_causal", "false"},
      {"use_bidirectional_attention", "true"},
      {"attn_temperature_tuning", "true"},
      {"index_topk", "2048"},
      {"layer_sharing", "true"},
      {"use_rope", "false"},
      {"mup_width", "4"},
      {"window_sizes", "[16, 0]"},
      {"attn_config", R"({"softcap": 30.0})"},
      {"some_factor", "2.0"},
      {"head_bias", "[0.0, 0.5]"},
  };
  for (const SavedFamily& family : kFamilies) {
    for (const auto& [name, value] : fields) {
      WholeConfig config = whole_config(family, family.four);
      config[name] = WholeConfig::parse(value);
      const auto spec = read_whole_config(family.arch, config);
      ASSERT_FALSE(spec.ok()) << family.name << ": " << name;
      EXPECT_EQ(spec.error().kind, ErrorKind::unsupported);
      EXPECT_NE(spec.error().message.find(name), std::string::npos) << spec.error().message;
    }
  }
}

TEST(UnreadFields, NeutralValuesAreAccepted) {
  for (
      const char* fields :
      {R"({"embedding_multiplier": 1.0, "logits_scaling": 1, "residual_multiplier": 1.0, "some_factor": 1})",
       R"({"clip_qkv": null, "use_qk_norm": false, "attention_chunk_size": null, "swiglu_limit": 0, "head_bias": 0})",
       R"({"attention_multiplier": 0.08838834764831845, "norm_type": "RMSNorm", "position_embedding_type": "rope"})",
       R"({"sliding_window": 131072, "layer_types": ["full_attention", "full_attention"], "window_sizes": [0, 0]})",
       R"({"use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28})",
       R"({"is_causal": true, "use_rope": true, "rotary_dim": 128, "norm_eps": 1e-5, "attn_config": {"softcap": 0.0}})",
       R"({"routed_scaling_factor": 1.0, "hidden_size_per_layer_input": 0, "rope_ratio": 1, "no_rope_layers": [1, 1]})"}) {
    WholeConfig config = whole_config(kFamilies[0], kFamilies[0].four);
    config.update(WholeConfig::parse(fields));
    const auto spec = read_whole_config("LlamaForCausalLM", config);
    EXPECT_TRUE(spec.ok()) << fields << ": " << spec.error().message;
  }
}

TEST(UnreadFields, ValuesOfAnotherTypeAreErrors) {
  for (const char* fields :
       {R"({"hidden_act": 7})", R"({"rope_scaling": {"rope_type": 5}})", R"({"layer_types": "full_attention"})",
        R"({"layer_types": [1, 2]})", R"({"use_sliding_window": "yes"})",
        R"({"rope_scaling": {"rope_type": "longrope", "long_factor": 2, "short_factor": [1]}})"}) {
    WholeConfig config = whole_config(kFamilies[1], kFamilies[1].four);
    config.update(WholeConfig::parse(fields));
    EXPECT_FALSE(read_whole_config("Qwen2ForCausalLM", config).ok()) << fields;
  }
}

TEST(UnreadFields, OtherFamiliesAreRefusedByTheirName) {
  for (const char* arch : {"GraniteForCausalLM", "CohereForCausalLM", "Glm4ForCausalLM", "MiniCPMForCausalLM"}) {
    const auto spec = read_whole_config(arch, whole_config(kFamilies[0], kFamilies[0].four));
    ASSERT_FALSE(spec.ok()) << arch;
    EXPECT_NE(spec.error().message.find(arch), std::string::npos) << spec.error().message;
  }
}

TEST(UnreadFields, Gemma2HasTheCapsOfItsClassWhereTheFileStatesNone) {
  WholeConfig config = whole_config(kFamilies[6], kFamilies[6].four);
  config.erase("attn_logit_softcapping");
  config["final_logit_softcapping"] = nullptr;
  const auto spec = read_whole_config(kFamilies[6].arch, config);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->attention_softcap, 50.0f);
  EXPECT_EQ(spec->final_softcap, 0.0f);
}

TEST(UnreadFields, KeysOfGgufFilesThatChangeNumbersAreRefusedByName) {
  struct {
    const char* arch;
    const char* keys;
    const char* refused;  // "": the file is read
  } const cases[] = {
      {"llama", R"({"rope.scaling.finetuned": true, "rope.dimension_sections": [2, 3, 3], "pooling_type": 3})", ""},
      {"llama", R"({"attention.clamp_kqv": 0.0, "attention.max_alibi_bias": 0.0, "attention.causal": true})", ""},
      {"llama", R"({"attention.clamp_kqv": 8.0})", "attention.clamp_kqv"},
      {"llama", R"({"attention.max_alibi_bias": 8.0})", "attention.max_alibi_bias"},
      {"llama", R"({"attention.causal": false})", "attention.causal"},
      {"llama", R"({"attention.temperature_scale": 0.1})", "attention.temperature_scale"},
      {"llama", R"({"rope.freq_base_swa": 5000.0})", "rope.freq_base_swa"},
      {"llama", R"({"rope.freq_base_swa": 10000.0})", ""},
      {"llama", R"({"rope.scaling.alpha": 1000.0})", "rope.scaling.alpha"},
      {"llama", R"({"rope.scaling.type": "yarn", "rope.scaling.yarn_ext_factor": 0.5})", "yarn_ext_factor"},
      {"llama", R"({"rope.scaling.type": "yarn", "rope.scaling.yarn_ext_factor": 1.0})", ""},
      {"llama", R"({"rope.scaling.type": "linear", "rope.scaling.yarn_ext_factor": 1.0})", "yarn_ext_factor"},
      {"llama", R"({"rope.scaling.yarn_attn_factor": 1.3})", "yarn_attn_factor"},
      {"qwen3", R"({"expert_gating_func": 2})", "expert_gating_func"},
      {"qwen3", R"({"expert_gating_func": 1, "attention.sliding_window": 4096})", ""},
      {"olmo2", R"({"attention.sliding_window": 512})", "attention.sliding_window"},
      {"gemma3", R"({"attention.sliding_window_pattern": 2, "rope.freq_base_swa": 10000.0})", ""},
      {"gemma3", R"({"attention.shared_kv_layers": 2})", "attention.shared_kv_layers"},
  };
  for (const auto& one : cases) {
    const auto spec = read_gguf_keys(one.arch, one.keys);
    ASSERT_EQ(spec.ok(), *one.refused == '\0') << one.keys << (spec.ok() ? "" : spec.error().message);
    if (!spec.ok()) {
      EXPECT_NE(spec.error().message.find(one.refused), std::string::npos) << spec.error().message;
    }
  }
}

}  // namespace
}  // namespace millrace
