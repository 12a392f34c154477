// Falcon-H1: every layer has attention and a Mamba-2 mixer side by side, then a gated MLP. A checkpoint states factors
// for the input and output of each part (maximal update parametrization, Yang et al., 2022). GGUF files have them in
// their matrices; of a folder, they become factors of the scores, of the mixers' outputs and of rows.
#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/mixers/mixer.h"

namespace millrace {
namespace {

void set_parallel_mixers(ArchSpec& spec, const SsmSpec& ssm, float attention_out, float ssm_out) {
  for (LayerSpec& layer : spec.layers) {
    layer.mixers = {{&kMamba2Mixer, ssm_out}, {&kAttentionMixer, attention_out}};
    layer.ssm = ssm;
  }
}

void read_falcon_h1_gguf(ConfigReader& meta, ArchSpec& spec) {
  SsmSpec ssm;
  ssm.inner = meta.count("ssm.inner_size", 1, kMaxWidth);
  ssm.state = meta.count("ssm.state_size", 1, kMaxState);
  ssm.taps = meta.count("ssm.conv_kernel", 1, kMaxTaps);
  ssm.heads = meta.count("ssm.time_step_rank", 1, kMaxWidth);
  ssm.groups = meta.count_or("ssm.group_count", 1, 1, kMaxWidth);
  set_parallel_mixers(spec, ssm, 1.0f, 1.0f);
}

void refuse_variants(ConfigReader& config) {
  const auto refuse = [&](const std::string& what) {
    config.fail(Error::unsupported(fmt::format("{}: {}", config.source(), what)));
  };
  for (const char* bias : {"attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"})
    if (config.flag_or(bias, false)) refuse(fmt::format("{}: biases of matrices", bias));
  // Transformers' class has true where a file has no field.
  const bool norm_first = config.flag_or("mamba_norm_before_gate", true);
  if (config.flag_or("mamba_rms_norm", false) && norm_first) refuse("mamba_norm_before_gate: a norm before the gate");
  if (const std::string name = config.text_or("hidden_act", "silu"); name != "silu")
    refuse(fmt::format("hidden_act '{}'", name));
  // Step sizes are positive.
  constexpr double kNoUpperLimit = 1e6;
  const std::vector<double> limits = config.numbers_or_empty("time_step_limit");
  if (!limits.empty() && (limits.size() != 2 || limits[0] > 0.0 || limits[1] < kNoUpperLimit))
    refuse("time_step_limit: limits of step sizes");
}

float read_multiplier(ConfigReader& config, const char* key) { return static_cast<float>(config.number_or(key, 1.0)); }

// The factors under `key`, of which there must be `count`; all 1 if the file has none.
std::vector<float> read_multipliers(ConfigReader& config, const char* key, size_t count) {
  const std::vector<double> stored = config.numbers_or_empty(key);
  if (stored.empty()) return std::vector<float>(count, 1.0f);
  if (stored.size() != count)
    config.fail(
        Error::corrupt(fmt::format("{}: {} must have {} numbers, has {}", config.source(), key, count, stored.size())));
  std::vector<float> out(stored.begin(), stored.end());
  out.resize(count, 1.0f);
  return out;
}

SsmSpec read_falcon_h1_ssm(ConfigReader& config, const ArchSpec& spec) {
  SsmSpec ssm;
  const int64_t expanded = config.count_or("mamba_expand", 2, 1, 64) * spec.width;
  ssm.inner = config.count_or("mamba_d_ssm", expanded, 1, kMaxWidth);
  ssm.heads = config.count_or("mamba_n_heads", 128, 1, kMaxWidth);
  ssm.groups = config.count_or("mamba_n_groups", 1, 1, kMaxWidth);
  ssm.state = config.count_or("mamba_d_state", 256, 1, kMaxState);
  ssm.taps = config.count_or("mamba_d_conv", 4, 1, kMaxTaps);
  if (!config.is_text("mamba_d_head") || config.text_or("mamba_d_head", "") != "auto") {
    const int64_t dim = config.count_or("mamba_d_head", ssm.inner / ssm.heads, 1, kMaxWidth);
    if (dim * ssm.heads != ssm.inner)
      config.fail(Error::corrupt(fmt::format("{}: mamba_d_head: {} heads of {} are not mamba_d_ssm {}", config.source(),
                                             ssm.heads, dim, ssm.inner)));
  }
  ssm.log_a = true;
  ssm.conv_bias = config.flag_or("mamba_conv_bias", true);
  ssm.gated_norm = config.flag_or("mamba_rms_norm", false);
  const float in = read_multiplier(config, "ssm_in_multiplier");
  const std::vector<float> parts = read_multipliers(config, "ssm_multipliers", ssm.scales.size());
  for (size_t i = 0; i < parts.size(); ++i) ssm.scales[i] = in * parts[i];
  return ssm;
}

void read_falcon_h1(ConfigReader& config, ArchSpec& spec) {
  refuse_variants(config);
  spec.norm_eps = static_cast<float>(config.number_or("rms_norm_eps", 1e-5));
  spec.embedding_scale = read_multiplier(config, "embedding_multiplier");
  spec.logit_scale = read_multiplier(config, "lm_head_multiplier");
  const std::vector<float> mlp = read_multipliers(config, "mlp_multipliers", 2);
  spec.gate_scale = mlp[0];
  spec.mlp_scale = mlp[1];
  // The factor of attention's input multiplies queries, keys and values; rotations and the weighted mean pass it on.
  const float in = read_multiplier(config, "attention_in_multiplier");
  spec.attention_scale =
      in * in * read_multiplier(config, "key_multiplier") / std::sqrt(static_cast<float>(spec.head_dim));
  const SsmSpec ssm = read_falcon_h1_ssm(config, spec);
  set_parallel_mixers(spec, ssm, in * read_multiplier(config, "attention_out_multiplier"),
                      read_multiplier(config, "ssm_out_multiplier"));
}

// ---- conversion ----

// The factors as the matrices of a GGUF file have them. The scores' factor is divided between queries and keys.
std::vector<RowFactor> take_falcon_h1_factors(ConfigReader& config, ArchSpec& spec) {
  const auto number = [&](const char* key) { return config.number_or(key, 1.0); };
  const auto numbers = [&](const char* key, size_t count) {
    std::vector<double> stored = config.numbers_or_empty(key);
    stored.resize(count, 1.0);
    return stored;
  };
  const double attention = number("attention_in_multiplier"), ssm_in = number("ssm_in_multiplier");
  const std::vector<double> mlp = numbers("mlp_multipliers", 2);
  std::vector<RowFactor> out = {{"token_embd.weight", 0, number("embedding_multiplier")},
                                {"output.weight", 0, number("lm_head_multiplier")},
                                {"attn_q.weight", 0, attention},
                                {"attn_k.weight", 0, attention * number("key_multiplier")},
                                {"attn_v.weight", 0, attention},
                                {"attn_output.weight", 0, number("attention_out_multiplier")},
                                {"ssm_out.weight", 0, number("ssm_out_multiplier")},
                                {"ffn_gate.weight", 0, mlp[0]},
                                {"ffn_down.weight", 0, mlp[1]}};
  const SsmSpec& ssm = spec.layers.front().ssm;
  const int64_t shared = ssm.groups * ssm.state;  // rows of B, and of C
  const int64_t parts[] = {ssm.inner, ssm.inner, shared, shared, ssm.heads};
  const std::vector<double> factors = numbers("ssm_multipliers", std::size(parts));
  for (size_t i = 0; i < std::size(parts); ++i) out.push_back({"ssm_in.weight", parts[i], ssm_in * factors[i]});

  spec.embedding_scale = spec.logit_scale = spec.gate_scale = spec.mlp_scale = 1.0f;
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  SsmSpec plain = ssm;
  plain.scales.fill(1.0f);
  set_parallel_mixers(spec, plain, 1.0f, 1.0f);
  return out;
}

void write_falcon_h1_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  const SsmSpec& ssm = spec.layers.front().ssm;
  meta["ssm.conv_kernel"] = ssm.taps;
  meta["ssm.inner_size"] = ssm.inner;
  meta["ssm.state_size"] = ssm.state;
  meta["ssm.time_step_rank"] = ssm.heads;
  meta["ssm.group_count"] = ssm.groups;
}

// The matrices of a GGUF file have the factors, so those of the folder are 1.
void write_falcon_h1(const ArchSpec& spec, nlohmann::ordered_json& config) {
  for (const char* key : {"attention_in_multiplier", "attention_out_multiplier", "embedding_multiplier",
                          "key_multiplier", "lm_head_multiplier", "ssm_in_multiplier", "ssm_out_multiplier"})
    config[key] = 1.0;
  config["mlp_multipliers"] = {1.0, 1.0};
  config["ssm_multipliers"] = {1.0, 1.0, 1.0, 1.0, 1.0};
  const SsmSpec& ssm = spec.layers.front().ssm;
  config["mamba_d_ssm"] = ssm.inner;
  config["mamba_n_heads"] = ssm.heads;
  config["mamba_d_head"] = ssm.inner / ssm.heads;
  config["mamba_n_groups"] = ssm.groups;
  config["mamba_d_state"] = ssm.state;
  config["mamba_d_conv"] = ssm.taps;
  config["mamba_conv_bias"] = ssm.conv_bias;
  config["mamba_rms_norm"] = ssm.gated_norm;
  for (const char* flag : {"mamba_norm_before_gate", "mamba_proj_bias", "projectors_bias", "mlp_bias"})
    config[flag] = false;
}

}  // namespace

const Arch kFalconH1 = {
    .name = "falcon-h1",
    .huggingface = {"FalconH1ForCausalLM"},
    .huggingface_type = "falcon_h1",
    .summary = "Attention and a Mamba-2 state space side by side in every layer, their outputs summed",
    .paper =
        "Zuo et al., 2025, Falcon-H1: A Family of Hybrid-Head Language Models Redefining Efficiency and Performance",
    .read_gguf = read_falcon_h1_gguf,
    .read_huggingface = read_falcon_h1,
    // The length of a chunk changes the order of sums alone; the second field says which logits a program computes.
    .harmless_fields = {"mamba_chunk_size", "num_logits_to_keep"},
    .names = {{"output_norm.weight", "model.final_layernorm.weight"},
              {"blk.{l}.ffn_norm.weight", "model.layers.{l}.pre_ff_layernorm.weight"},
              {"blk.{l}.ffn_gate.weight", "model.layers.{l}.feed_forward.gate_proj.weight"},
              {"blk.{l}.ffn_up.weight", "model.layers.{l}.feed_forward.up_proj.weight"},
              {"blk.{l}.ffn_down.weight", "model.layers.{l}.feed_forward.down_proj.weight"},
              {"blk.{l}.ssm_in.weight", "model.layers.{l}.mamba.in_proj.weight"},
              {"blk.{l}.ssm_conv1d.weight", "model.layers.{l}.mamba.conv1d.weight"},
              {"blk.{l}.ssm_conv1d.bias", "model.layers.{l}.mamba.conv1d.bias"},
              {"blk.{l}.ssm_dt.bias", "model.layers.{l}.mamba.dt_bias"},
              {"blk.{l}.ssm_a", "model.layers.{l}.mamba.A_log"},
              {"blk.{l}.ssm_d", "model.layers.{l}.mamba.D"},
              {"blk.{l}.ssm_norm.weight", "model.layers.{l}.mamba.norm.weight"},
              {"blk.{l}.ssm_out.weight", "model.layers.{l}.mamba.out_proj.weight"}},
    .gguf_names = {{"blk.{l}.ffn_norm.weight", "blk.{l}.ffn_norm"}},  // llama.cpp's files; others have the suffix
    .take_factors = take_falcon_h1_factors,
    .write_gguf = write_falcon_h1_gguf,
    .write_huggingface = write_falcon_h1,
};

}  // namespace millrace
