// Falcon-H1: every layer has attention and a Mamba-2 mixer side by side, then a gated MLP. A checkpoint states factors
// for the input and output of each part (maximal update parametrization, Yang et al., 2022). GGUF files have them in
// their matrices; of a folder, they become factors of the scores, of the mixers' outputs and of rows.
#include <fmt/format.h>

#include <cmath>

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
    // The matrices of such a GGUF file are multiplied by the factors, which conversion does not do.
    .folder_to_gguf = false,
    .gguf_to_folder = false,
};

}  // namespace millrace
