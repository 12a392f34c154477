// Factors of YaRN in GGUF files and in DeepSeek's config.json, against Transformers' formulas: cos and sin are
// multiplied by get_mscale(factor, mscale) / get_mscale(factor, mscale_all_dim) if both numbers are stated, by
// get_mscale(factor, 1) if not; DeepSeek's scores by get_mscale(factor, mscale_all_dim)^2 if that number is stated.
#include "models/arch/gguf_rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/ordered_json.h"
#include "models/blocks/rope.h"

namespace millrace {
namespace {

using RopeKeys = nlohmann::ordered_json;

constexpr double kFactor = 8.0;

double reference_mscale(double multiplier) { return 0.1 * multiplier * std::log(kFactor) + 1.0; }

Result<ArchSpec> read_keys(ModelFiles::Kind kind, const char* arch, const RopeKeys& keys) {
  ModelFiles files;
  files.kind = kind;
  files.path = "m";
  files.architecture = arch;
  files.config = std::make_shared<const RopeKeys>(keys);
  return read_arch_spec(files);
}

RopeKeys deepseek_keys() {
  return RopeKeys::parse(R"({"vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "intermediate_size": 96, "max_position_embeddings": 4096, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
      "qk_nope_head_dim": 16, "v_head_dim": 16})");
}

RopeKeys gguf_keys(const std::string& arch) {
  RopeKeys out;
  const RopeKeys common = RopeKeys::parse(R"({"context_length": 4096, "embedding_length": 64, "block_count": 2,
           "feed_forward_length": 96, "attention.head_count": 4, "vocab_size": 32, "attention.kv_lora_rank": 16,
           "rope.dimension_count": 8, "rope.scaling.type": "yarn", "rope.scaling.factor": 8.0,
           "rope.scaling.original_context_length": 512})");
  for (const auto& [key, value] : common.items()) out[arch + "." + key] = value;
  if (arch == "deepseek2") {
    out["deepseek2.attention.key_length"] = 24;
    out["deepseek2.attention.value_length"] = 16;
  }
  return out;
}

struct YarnCase {
  const char* fields;
  double rotation;  // factor of cos and sin
  double scores;    // in addition to 1 / sqrt(24)
};

TEST(GgufRope, DeepseekConfigsHaveTransformersFactors) {
  const double own = reference_mscale(1), half = reference_mscale(0.5), two = reference_mscale(2);
  const YarnCase cases[] = {
      {R"({})", own, 1},
      {R"({"mscale": 2.0})", own, 1},
      {R"({"mscale_all_dim": 0.5})", own, half * half},
      {R"({"mscale": 2.0, "mscale_all_dim": 0.5})", two / half, half * half},
      {R"({"mscale": 2.0, "mscale_all_dim": 2.0})", 1, two * two},
      {R"({"mscale_all_dim": 0.5, "attention_factor": 1.25})", 1.25, half * half},
  };
  for (const char* arch : {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"}) {
    for (const char* where : {"rope_scaling", "rope_parameters"}) {
      for (const YarnCase& one : cases) {
        RopeKeys keys = deepseek_keys();
        keys[where] =
            RopeKeys::parse(R"({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512})");
        keys[where].update(RopeKeys::parse(one.fields));
        const auto spec = read_keys(ModelFiles::Kind::huggingface, arch, keys);
        ASSERT_TRUE(spec.ok()) << spec.error().message;
        EXPECT_FLOAT_EQ(rope_scale(spec->ropes[0]), static_cast<float>(one.rotation)) << one.fields;
        EXPECT_FLOAT_EQ(spec->attention_scale, static_cast<float>(one.scores / std::sqrt(24.0))) << one.fields;
      }
    }
  }
  // The number counts under other scalings too, and wherever it is.
  RopeKeys keys = deepseek_keys();
  keys["rope_scaling"] = RopeKeys::parse(R"({"rope_type": "linear", "factor": 8.0})");
  keys["rope_parameters"] = RopeKeys::parse(R"({"mscale_all_dim": 0.5})");
  const auto spec = read_keys(ModelFiles::Kind::huggingface, "DeepseekV3ForCausalLM", keys);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_FLOAT_EQ(spec->attention_scale, static_cast<float>(half * half / std::sqrt(24.0)));
}

TEST(GgufRope, FilesStateTheSameFactors) {
  const double own = reference_mscale(1), half = reference_mscale(0.5);
  struct {
    const char* arch;
    const char* keys;
    double rotation, scores;
  } const cases[] = {
      {"llama", R"({})", own, 1},
      {"llama", R"({"rope.scaling.attn_factor": 1.5})", 1.5 * own, 1},
      {"llama", R"({"rope.scaling.yarn_log_multiplier": 0.5})", own / half, 1},
      {"llama", R"({"rope.scaling.yarn_log_multiplier": 1.0, "rope.scaling.attn_factor": 1.5})", 1.5, 1},
      {"llama", R"({"rope.scaling.type": "linear", "rope.scaling.attn_factor": 1.5})", 1.5, 1},
      {"llama", R"({"rope.scaling.type": "none"})", 1, 1},
      {"deepseek2", R"({})", own, 1},
      {"deepseek2", R"({"rope.scaling.yarn_log_multiplier": 0.05})", 1, half * half},
      {"deepseek2", R"({"rope.scaling.yarn_log_multiplier": 0.05, "rope.scaling.attn_factor": 1.5})", 1.5, half * half},
  };
  for (const auto& one : cases) {
    RopeKeys keys = gguf_keys(one.arch);
    const double dims = std::string(one.arch) == "deepseek2" ? 24.0 : 16.0;
    const RopeKeys added = RopeKeys::parse(one.keys);
    for (const auto& [key, value] : added.items()) keys[std::string(one.arch) + "." + key] = value;
    const auto spec = read_keys(ModelFiles::Kind::gguf, one.arch, keys);
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_FLOAT_EQ(rope_scale(spec->ropes[0]), static_cast<float>(one.rotation)) << one.arch << one.keys;
    EXPECT_FLOAT_EQ(spec->attention_scale, static_cast<float>(one.scores / std::sqrt(dims))) << one.arch << one.keys;
  }
}

TEST(GgufRope, OriginalContextOfZeroIsTheTrainedOne) {
  RopeKeys keys = gguf_keys("llama");
  keys["llama.rope.scaling.original_context_length"] = 0;
  const auto spec = read_keys(ModelFiles::Kind::gguf, "llama", keys);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->ropes[0].original_context, 4096);
}

}  // namespace
}  // namespace millrace
