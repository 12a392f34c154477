// gpt-oss: a mixture of experts with biases everywhere, clamped SwiGLU experts, windows in every second layer, and a
// learned sink in the softmax of each head. (OpenAI, 2025, gpt-oss-120b & gpt-oss-20b Model Card.)
#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/writing.h"

namespace millrace {
namespace {

constexpr int64_t kGptOssWindow = 128;

void set_gpt_oss(ArchSpec& spec) {
  spec.attention_sinks = true;
  spec.activation = HiddenActivation::clamped_swiglu;
}

void read_gpt_oss_gguf(ConfigReader& meta, ArchSpec& spec) {
  set_gpt_oss(spec);
  alternate_windows(spec, meta.count_or("attention.sliding_window", kGptOssWindow, 0, kMaxContext), 2);
  for (RopeSpec& rope : spec.ropes) rope.truncate = false;  // the format has no key for it
}

void read_gpt_oss(ConfigReader& config, ArchSpec& spec) {
  set_gpt_oss(spec);
  spec.activation_limit = static_cast<float>(config.number_or("swiglu_limit", 7.0));
  config.has("hidden_act");         // "silu", which is a part of the activation
  config.has("experts_per_token");  // num_experts_per_tok under an older name
  config.has("initial_context_length");
  read_huggingface_windows(config, spec, 2);
  read_huggingface_moe(config, spec, "num_local_experts", "intermediate_size");
}

void write_gpt_oss(const ArchSpec& spec, nlohmann::ordered_json& config) {
  write_huggingface_windows(spec, config);
  config["hidden_act"] = "silu";
  config["swiglu_limit"] = spec.activation_limit;
  config["intermediate_size"] = spec.moe.hidden;
  config["num_local_experts"] = spec.moe.experts;
  config["num_experts_per_tok"] = spec.moe.used;
}

}  // namespace

const Arch kGptOss = {
    .name = "gpt-oss",
    .huggingface = {"GptOssForCausalLM"},
    .huggingface_type = "gpt_oss",
    .summary = "A mixture of experts with attention sinks, windows in every second layer, and biases",
    .paper = "OpenAI, 2025, gpt-oss-120b & gpt-oss-20b Model Card",
    .activation = HiddenActivation::clamped_swiglu,
    .read_gguf = read_gpt_oss_gguf,
    .read_huggingface = read_gpt_oss,
    .names = {{"blk.{l}.attn_sinks.weight", "model.layers.{l}.self_attn.sinks"},
              {"blk.{l}.ffn_gate_inp.weight", "model.layers.{l}.mlp.router.weight"},
              {"blk.{l}.ffn_gate_inp.bias", "model.layers.{l}.mlp.router.bias"},
              {"blk.{l}.ffn_gate_exps.weight", "model.layers.{l}.mlp.experts.gate_proj.weight"},
              {"blk.{l}.ffn_gate_exps.bias", "model.layers.{l}.mlp.experts.gate_proj.bias"},
              {"blk.{l}.ffn_up_exps.weight", "model.layers.{l}.mlp.experts.up_proj.weight"},
              {"blk.{l}.ffn_up_exps.bias", "model.layers.{l}.mlp.experts.up_proj.bias"},
              {"blk.{l}.ffn_down_exps.weight", "model.layers.{l}.mlp.experts.down_proj.weight"},
              {"blk.{l}.ffn_down_exps.bias", "model.layers.{l}.mlp.experts.down_proj.bias"}},
    .gguf_names = {{"blk.{l}.ffn_norm.weight", "blk.{l}.post_attention_norm.weight"}},
    .write_huggingface = write_gpt_oss,
};

}  // namespace millrace
