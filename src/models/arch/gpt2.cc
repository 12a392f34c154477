// GPT-2: learned positions, LayerNorm, fused QKV, plain GELU MLP, biases everywhere.
#include "models/arch/builtin.h"
#include "models/arch/common.h"

namespace millrace {
namespace {

void set_common(ArchSpec& spec) {
  spec.norm = NormKind::layer;
  spec.gated = false;
  spec.activation = HiddenActivation::gelu_tanh;
  spec.learned_positions = true;
  for (auto& layer : spec.layers) layer.rope = -1;
}

void read_gguf(ConfigReader&, ArchSpec& spec) { set_common(spec); }

// config.json of GPT-2 has names of its own, so nothing common was read.
void read_huggingface(ConfigReader& config, ArchSpec& spec) {
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
  set_common(spec);
}

}  // namespace

const Arch kGpt2 = {
    .name = "gpt2",
    .huggingface = {"GPT2LMHeadModel", "gpt2"},
    .summary = "Learned positions, LayerNorm, plain GELU MLP, biases everywhere",
    .paper = "Radford et al., 2019, Language Models are Unsupervised Multitask Learners",
    .read_gguf = read_gguf,
    .read_huggingface = read_huggingface,
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
              {"blk.{l}.ffn_norm.weight", "transformer.h.{l}.ln_2.weight"},
              {"blk.{l}.ffn_norm.bias", "transformer.h.{l}.ln_2.bias"},
              {"blk.{l}.ffn_up.weight", "^transformer.h.{l}.mlp.c_fc.weight"},
              {"blk.{l}.ffn_up.bias", "transformer.h.{l}.mlp.c_fc.bias"},
              {"blk.{l}.ffn_down.weight", "^transformer.h.{l}.mlp.c_proj.weight"},
              {"blk.{l}.ffn_down.bias", "transformer.h.{l}.mlp.c_proj.bias"}},
};

}  // namespace millrace
