// Rotary fields of current families' configs as Transformers 4 and 5 save them.
#include "models/arch/rope_fields.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/ordered_json.h"
#include "models/arch.h"
#include "models/blocks/rope.h"

namespace millrace {
namespace {

using Config = nlohmann::ordered_json;

Result<ArchSpec> read_config(const char* arch, const std::string& fields) {
  Config config = Config::parse(R"({"vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 6,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 4096})");
  config.update(Config::parse(fields));
  ModelFiles files;
  files.kind = ModelFiles::Kind::huggingface;
  files.path = "m";
  files.architecture = arch;
  files.config = std::make_shared<const Config>(std::move(config));
  return read_arch_spec(files);
}

struct SavedTwice {
  const char* name;
  const char* arch;
  const char* four;  // as Transformers 4 saves it
  const char* five;
};

constexpr const char* kLocal = R"("sliding_window": 512, "layer_types": ["sliding_attention", "sliding_attention",
    "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"])";

TEST(RopeFields, BothVersionsOfEveryFamilyReadTheSame) {
  const std::string local = kLocal;
  const SavedTwice cases[] = {
      {"llama 3", "LlamaForCausalLM",
       R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
           "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}})",
       R"({"rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
           "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}})"},
      {"llama, partly rotated", "LlamaForCausalLM", R"({"rope_theta": 1e6, "partial_rotary_factor": 0.5})",
       R"({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default", "partial_rotary_factor": 0.5}})"},
      {"qwen2 with YaRN", "Qwen2ForCausalLM",
       R"({"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0,
           "original_max_position_embeddings": 1024}})",
       R"({"rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0,
           "original_max_position_embeddings": 1024}})"},
      {"qwen3", "Qwen3ForCausalLM", R"({"rope_theta": 1e6, "rope_scaling": null, "head_dim": 32})",
       R"({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "head_dim": 32})"},
      {"mistral with YaRN", "MistralForCausalLM",
       R"({"rope_theta": 1e6, "sliding_window": null, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
           "beta_fast": 16.0, "beta_slow": 2.0, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": false,
           "original_max_position_embeddings": 1024}})",
       R"({"sliding_window": null, "rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0,
           "beta_fast": 16.0, "beta_slow": 2.0, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": false,
           "original_max_position_embeddings": 1024}})"},
      {"mixtral", "MixtralForCausalLM", R"({"rope_theta": 1e6, "num_local_experts": 4, "num_experts_per_tok": 2})",
       R"({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "num_local_experts": 4,
           "num_experts_per_tok": 2})"},
      {"phi 4 mini", "Phi3ForCausalLM",
       R"({"rope_theta": 1e4, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 1024,
           "rope_scaling": {"type": "longrope", "long_factor": [1, 2, 3, 4, 5, 6], "short_factor": [1, 1, 1, 1, 1, 2]}})",
       R"({"original_max_position_embeddings": 1024, "rope_parameters": {"rope_theta": 1e4, "rope_type": "longrope",
           "partial_rotary_factor": 0.75, "original_max_position_embeddings": 1024, "factor": 4.0,
           "long_factor": [1, 2, 3, 4, 5, 6], "short_factor": [1, 1, 1, 1, 1, 2]}})"},
      {"olmo 2", "Olmo2ForCausalLM", R"({"rope_theta": 500000})",
       R"({"rope_parameters": {"rope_theta": 500000, "rope_type": "default"}})"},
      {"smollm 3", "SmolLM3ForCausalLM", R"({"rope_theta": 5e6})",
       R"({"rope_parameters": {"rope_theta": 5e6, "rope_type": "default"}})"},
      {"gemma 2", "Gemma2ForCausalLM", R"({"rope_theta": 1e4, "query_pre_attn_scalar": 16})",
       R"({"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}, "query_pre_attn_scalar": 16})"},
  };
  for (const SavedTwice& one : cases) {
    const auto four = read_config(one.arch, one.four), five = read_config(one.arch, one.five);
    ASSERT_TRUE(four.ok()) << one.name << ": " << four.error().message;
    ASSERT_TRUE(five.ok()) << one.name << ": " << five.error().message;
    EXPECT_EQ(four->ropes, five->ropes) << one.name;
    EXPECT_EQ(four->layers, five->layers) << one.name;
  }
  const auto four = read_config("Gemma3ForCausalLM", R"({"rope_theta": 1e6, "rope_local_base_freq": 2e4,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0}, )" +
                                                         local + "}");
  const auto five = read_config("Gemma3ForCausalLM", R"({"rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
      "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}, )" +
                                                         local + "}");
  ASSERT_TRUE(four.ok() && five.ok());
  ASSERT_EQ(five->ropes.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(rope_frequencies(four->ropes[i], 1), rope_frequencies(five->ropes[i], 1));
  EXPECT_EQ(four->layers, five->layers);
}

TEST(RopeFields, PartOfTheHeadIsRotatedWhereverTheFileSaysSo) {
  const auto spec = read_config("LlamaForCausalLM", R"({"rope_parameters": {"partial_rotary_factor": 0.25}})");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->ropes[0].rotated, 4);
}

TEST(RopeFields, YarnHasTheTemperatureAndRampOfItsFields) {
  const std::string yarn = R"({"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 4, )";
  const std::string end = R"("original_max_position_embeddings": 512}})";
  const auto plain = read_config("LlamaForCausalLM", yarn + end);
  const auto both = read_config("LlamaForCausalLM", yarn + R"("mscale": 2.0, "mscale_all_dim": 0.5, )" + end);
  const auto one = read_config("LlamaForCausalLM", yarn + R"("mscale": 2.0, )" + end);
  const auto exact = read_config("LlamaForCausalLM", yarn + R"("truncate": false, )" + end);
  ASSERT_TRUE(plain.ok() && both.ok() && one.ok() && exact.ok());
  const double log = std::log(8.0);
  EXPECT_FLOAT_EQ(rope_scale(plain->ropes[0]), static_cast<float>(0.1 * log + 1.0));
  EXPECT_FLOAT_EQ(rope_scale(both->ropes[0]), static_cast<float>((0.2 * log + 1.0) / (0.05 * log + 1.0)));
  EXPECT_FLOAT_EQ(rope_scale(one->ropes[0]), rope_scale(plain->ropes[0]));
  // The ramp between unrounded ends, with 16 rotated dims: from dim 2.611... to dim 3.815...
  const auto frequencies = rope_frequencies(exact->ropes[0], 512), rounded = rope_frequencies(plain->ropes[0], 512);
  const auto end_of = [](double turns) { return 16.0 * std::log(512 / (turns * 2 * M_PI)) / (2 * std::log(10000.0)); };
  const double low = end_of(4), high = end_of(1);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double base = std::pow(10000.0, -2.0 * static_cast<double>(i) / 16.0);
    EXPECT_NEAR(frequencies[i], base / 8 * ramp + base * (1 - ramp), 1e-12) << i;
  }
  EXPECT_NE(frequencies, rounded);
}

TEST(RopeFields, SlidingLayersOfAnyFamilyHaveTheirOwnRope) {
  const auto spec = read_config("MistralForCausalLM", R"({"rope_parameters": {
      "full_attention": {"rope_theta": 1e6, "rope_type": "default"},
      "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}, )" +
                                                          std::string(kLocal) + "}");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  ASSERT_EQ(spec->ropes.size(), 2u);
  EXPECT_EQ(spec->layers[0].rope, 1);
  EXPECT_EQ(spec->layers[5].rope, 0);
  EXPECT_EQ(spec->ropes[1].theta, 1e4);
}

// As Transformers computes it: the base grows once the text is longer than max_position_embeddings.
TEST(RopeFields, DynamicScalingChangesNothingWithinTheContext) {
  const auto plain = read_config("LlamaForCausalLM", "{}"),
             dynamic = read_config("LlamaForCausalLM", R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})");
  ASSERT_TRUE(plain.ok() && dynamic.ok());
  EXPECT_TRUE(dynamic->ropes[0].dynamic);
  EXPECT_EQ(rope_frequencies(dynamic->ropes[0], dynamic->context), rope_frequencies(plain->ropes[0], plain->context));
  EXPECT_EQ(rope_scale(dynamic->ropes[0]), 1.0f);
}

TEST(RopeFields, WhatCannotBeReadIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"rope_parameters": {"rope_type": "default", "llama_4_scaling_beta": 0.1}})", "llama_4_scaling_beta"},
      {R"({"rope_scaling": {"type": "ntk-by-parts", "factor": 2.0}})", "ntk-by-parts"},
      {R"({"rope_scaling": {"type": "default", "alpha": 1000.0}})", "alpha"},
      {R"({"rope_scaling": {"type": "linear", "factor": "2"}})", "factor"},
      {R"({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"factor": 4}})", "factor"},
      {R"({"rope_parameters": {"full_attention": {}, "chunked_attention": {}}})", "chunked_attention"},
      {R"({"partial_rotary_factor": 1.5})", "partial_rotary_factor"},
      {R"({"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 1e300}})",
       "partial_rotary_factor"},
      {R"({"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": -0.5}})", "partial_rotary_factor"},
      {R"({"rope_scaling": [1]})", "rope_scaling"},
      {R"({"embedding_multiplier": 12.0})", "embedding_multiplier"},
      {R"({"use_bidirectional_attention": true})", "use_bidirectional_attention"},
  };
  for (const auto& [fields, name] : cases) {
    const auto spec = read_config("LlamaForCausalLM", fields);
    ASSERT_FALSE(spec.ok()) << fields;
    EXPECT_NE(spec.error().message.find(name), std::string::npos) << spec.error().message;
  }
  for (const char* fields : {R"({"embedding_multiplier": 1.0, "use_bidirectional_attention": false})",
                             R"({"rope_scaling": {"type": "default", "mrope_section": [2, 3, 3], "alpha": null}})"}) {
    const auto spec = read_config("LlamaForCausalLM", fields);
    EXPECT_TRUE(spec.ok()) << spec.error().message;
  }
}

}  // namespace
}  // namespace millrace
