// GPT-2: learned positions, LayerNorm, fused QKV, plain GELU MLP, biases everywhere.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/writing.h"

namespace millrace {
namespace {

void set_gpt2(ArchSpec& spec) {
  spec.norm = NormKind::layer;
  spec.gated = false;
  spec.activation = HiddenActivation::gelu_tanh;
  spec.learned_positions = true;
  for (auto& layer : spec.layers) layer.rope = -1;
}

void read_gpt2_gguf(ConfigReader&, ArchSpec& spec) { set_gpt2(spec); }

// GPT-2's config.json uses its own names, so the common fields were not read.
void read_gpt2(ConfigReader& config, ArchSpec& spec) {
  spec.vocab = config.count("vocab_size", 1, kMaxVocab);
  spec.width = config.count("n_embd", 1, kMaxWidth);
  spec.heads = config.count("n_head", 1, kMaxWidth);
  spec.kv_heads = spec.heads;
  spec.head_dim = spec.width / spec.heads;
  spec.hidden = config.count_or("n_inner", 4 * spec.width, 1, kMaxWidth);
  spec.context = config.count_or("n_positions", config.count_or("n_ctx", 1024, 1, kMaxContext), 1, kMaxContext);
  spec.norm_eps = static_cast<float>(config.number_or("layer_norm_epsilon", 1e-5));
  spec.layers.assign(static_cast<size_t>(config.count("n_layer", 1, kMaxLayers)), LayerSpec{});
  spec.ropes = {RopeSpec{}};
  const std::string activation = config.text_or("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh" && activation != "gelu_fast")
    config.fail(Error::unsupported(fmt::format("{}: activation_function '{}'", config.source(), activation)));
  if (config.flag_or("scale_attn_by_inverse_layer_idx", false) || !config.flag_or("scale_attn_weights", true))
    config.fail(Error::unsupported(
        fmt::format("{}: scale_attn_by_inverse_layer_idx, or scale_attn_weights off", config.source())));
  set_gpt2(spec);
}

void write_gpt2(const ArchSpec& spec, nlohmann::ordered_json& config) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "hidden_act",
                          "rope_theta", "rope_scaling", "partial_rotary_factor"})
    config.erase(key);
  config["n_embd"] = spec.width;
  config["n_layer"] = spec.layer_count();
  config["n_head"] = spec.heads;
  config["n_inner"] = spec.hidden;
  config["n_positions"] = spec.context;
  config["n_ctx"] = spec.context;
  config["layer_norm_epsilon"] = plain_number(spec.norm_eps);
  config["activation_function"] = "gelu_new";
}

}  // namespace

const Arch kGpt2 = {
    .name = "gpt2",
    .huggingface = {"GPT2LMHeadModel"},
    .huggingface_type = "gpt2",
    .summary = "Learned positions, LayerNorm, plain GELU MLP, biases everywhere",
    .paper = "Radford et al., 2019, Language Models are Unsupervised Multitask Learners",
    .activation = HiddenActivation::gelu_tanh,
    .common_huggingface = false,
    .read_gguf = read_gpt2_gguf,
    .read_huggingface = read_gpt2,
    .names = {{"token_embd.weight", "transformer.wte.weight"},
              {"position_embd.weight", "transformer.wpe.weight"},
              {"output_norm.weight", "transformer.ln_f.weight"},
              {"output_norm.bias", "transformer.ln_f.bias"},
              {"blk.{l}.attn_norm.weight", "transformer.h.{l}.ln_1.weight"},
              {"blk.{l}.attn_norm.bias", "transformer.h.{l}.ln_1.bias"},
              {"blk.{l}.attn_qkv.weight", "^transformer.h.{l}.attn.c_attn.weight"},
              {"blk.{l}.attn_qkv.bias", "transformer.h.{l}.attn.c_attn.bias"},
              {"blk.{l}.attn_output.weight", "^transformer.h.{l}.attn.c_proj.weight"},
              {"blk.{l}.attn_output.bias", "transformer.h.{l}.attn.c_proj.bias"},
              {"blk.{l}.attn_int_q.weight", "transformer.h.{l}.attn.q_int.weight"},
              {"blk.{l}.attn_int_k.weight", "transformer.h.{l}.attn.k_int.weight"},
              {"blk.{l}.attn_int.bias", "transformer.h.{l}.attn.int_bias"},
              {"blk.{l}.attn_select.weight", "transformer.h.{l}.attn.q_router.weight_proj.weight"},
              {"blk.{l}.attn_select.bias", "transformer.h.{l}.attn.q_router.weight_proj.bias"},
              {"blk.{l}.attn_select.temperature", "transformer.h.{l}.attn.q_router.temp"},
              {"blk.{l}.ffn_norm.weight", "transformer.h.{l}.ln_2.weight"},
              {"blk.{l}.ffn_norm.bias", "transformer.h.{l}.ln_2.bias"},
              {"blk.{l}.ffn_up.weight", "^transformer.h.{l}.mlp.c_fc.weight"},
              {"blk.{l}.ffn_up.bias", "transformer.h.{l}.mlp.c_fc.bias"},
              {"blk.{l}.ffn_down.weight", "^transformer.h.{l}.mlp.c_proj.weight"},
              {"blk.{l}.ffn_down.bias", "transformer.h.{l}.mlp.c_proj.bias"}},
    .write_huggingface = write_gpt2,
};

}  // namespace millrace
