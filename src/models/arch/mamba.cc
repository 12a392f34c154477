// Mamba: every layer is one selective state space, with no attention and no MLP.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/writing.h"
#include "models/mixers/mixer.h"

namespace millrace {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 20;  // the state has no trained length; converters write this one

void set_layers(ArchSpec& spec, int64_t layers, const SsmSpec& ssm) {
  LayerSpec layer;
  layer.mixers = {{&kMambaMixer}};
  layer.rope = -1;
  layer.mlp = false;
  layer.ssm = ssm;
  spec.layers.assign(static_cast<size_t>(layers), layer);
}

void read_mamba_gguf(ConfigReader& meta, ArchSpec& spec) {
  spec.context = meta.count_or("context_length", kNoLimit, 1, kMaxContext);
  spec.width = meta.count("embedding_length", 1, kMaxWidth);
  spec.norm_eps = static_cast<float>(meta.number_or("attention.layer_norm_rms_epsilon", 1e-5));
  SsmSpec ssm;
  ssm.inner = meta.count("ssm.inner_size", 1, kMaxWidth);
  ssm.state = meta.count("ssm.state_size", 1, kMaxState);
  ssm.taps = meta.count("ssm.conv_kernel", 1, kMaxTaps);
  ssm.rank = meta.count("ssm.time_step_rank", 1, kMaxWidth);
  if (meta.flag_or("ssm.dt_b_c_rms", false))
    meta.fail(Error::unsupported(fmt::format("{}: norms of the step sizes, B and C (Falcon Mamba)", meta.source())));
  set_layers(spec, meta.count("block_count", 1, kMaxLayers), ssm);
}

void write_mamba_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  for (const char* key : {"attention.head_count_kv", "attention.key_length", "attention.value_length"}) meta.erase(key);
  const SsmSpec& ssm = spec.layers.front().ssm;
  meta["ssm.conv_kernel"] = ssm.taps;
  meta["ssm.inner_size"] = ssm.inner;
  meta["ssm.state_size"] = ssm.state;
  meta["ssm.time_step_rank"] = ssm.rank;
}

void read_mamba(ConfigReader& config, ArchSpec& spec) {
  spec.vocab = config.count("vocab_size", 1, kMaxVocab);
  spec.width = config.count("hidden_size", 1, kMaxWidth);
  spec.context = config.count_or("max_position_embeddings", kNoLimit, 1, kMaxContext);
  spec.norm_eps = static_cast<float>(config.number_or("layer_norm_epsilon", 1e-5));
  SsmSpec ssm;
  const int64_t expanded = config.count_or("expand", 2, 1, 64) * spec.width;
  ssm.inner = config.count_or("intermediate_size", expanded, 1, kMaxWidth);
  ssm.state = config.count_or("state_size", 16, 1, kMaxState);
  ssm.taps = config.count_or("conv_kernel", 4, 1, kMaxTaps);
  const int64_t automatic = (spec.width + 15) / 16;
  ssm.rank = config.is_text("time_step_rank") && config.text_or("time_step_rank", "") == "auto"
                 ? automatic
                 : config.count_or("time_step_rank", automatic, 1, kMaxWidth);
  ssm.log_a = true;
  ssm.conv_bias = config.flag_or("use_conv_bias", true);
  if (config.text_or("hidden_act", "silu") != "silu")
    config.fail(
        Error::unsupported(fmt::format("{}: hidden_act '{}'", config.source(), config.text_or("hidden_act", "silu"))));
  if (config.flag_or("use_bias", false))
    config.fail(Error::unsupported(fmt::format("{}: biases of in_proj and out_proj", config.source())));
  set_layers(spec, config.count("num_hidden_layers", 1, kMaxLayers), ssm);
}

void write_mamba(const ArchSpec& spec, nlohmann::ordered_json& config) {
  for (const char* key : {"num_attention_heads", "num_key_value_heads", "head_dim", "attention_bias", "rms_norm_eps"})
    config.erase(key);
  const SsmSpec& ssm = spec.layers.front().ssm;
  config["layer_norm_epsilon"] = plain_number(spec.norm_eps);
  config["hidden_act"] = "silu";
  config["intermediate_size"] = ssm.inner;
  config["state_size"] = ssm.state;
  config["conv_kernel"] = ssm.taps;
  config["time_step_rank"] = ssm.rank;
  config["use_conv_bias"] = ssm.conv_bias;
  config["use_bias"] = false;
}

}  // namespace

const Arch kMamba = {
    .name = "mamba",
    .huggingface = {"MambaForCausalLM"},
    .huggingface_type = "mamba",
    .summary = "Selective state spaces in place of attention and MLP; a stream keeps a state of fixed size",
    .paper = "Gu and Dao, 2023, Mamba: Linear-Time Sequence Modeling with Selective State Spaces",
    .common_gguf = false,
    .common_huggingface = false,
    .read_gguf = read_mamba_gguf,
    .read_huggingface = read_mamba,
    // They set how training starts and which kernels train; inference does not read them.
    .harmless_fields = {"rescale_prenorm_residual", "fused_add_norm", "time_step_scale"},
    .names = {{"token_embd.weight", "backbone.embeddings.weight"},
              {"output_norm.weight", "backbone.norm_f.weight"},
              {"blk.{l}.attn_norm.weight", "backbone.layers.{l}.norm.weight"},
              {"blk.{l}.ssm_in.weight", "backbone.layers.{l}.mixer.in_proj.weight"},
              {"blk.{l}.ssm_conv1d.weight", "backbone.layers.{l}.mixer.conv1d.weight"},
              {"blk.{l}.ssm_conv1d.bias", "backbone.layers.{l}.mixer.conv1d.bias"},
              {"blk.{l}.ssm_x.weight", "backbone.layers.{l}.mixer.x_proj.weight"},
              {"blk.{l}.ssm_dt.weight", "backbone.layers.{l}.mixer.dt_proj.weight"},
              {"blk.{l}.ssm_dt.bias", "backbone.layers.{l}.mixer.dt_proj.bias"},
              {"blk.{l}.ssm_a", "backbone.layers.{l}.mixer.A_log"},
              {"blk.{l}.ssm_d", "backbone.layers.{l}.mixer.D"},
              {"blk.{l}.ssm_out.weight", "backbone.layers.{l}.mixer.out_proj.weight"}},
    .write_gguf = write_mamba_gguf,
    .write_huggingface = write_mamba,
};

}  // namespace millrace
