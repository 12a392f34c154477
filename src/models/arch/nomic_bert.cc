// Nomic's BERT: rotations in place of learned positions, and a gated MLP without biases.
#include <fmt/format.h>

#include <algorithm>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/encoders.h"

namespace millrace {
namespace {

constexpr int64_t kTrainedPositions = 2048;

void set_nomic_bert(ConfigReader& config, ArchSpec& spec) {
  set_encoder(config, spec);
  spec.norm = NormKind::layer;
  spec.pre_norm = false;
  spec.sum_norm = true;
  spec.embedding_norm = true;
  spec.activation = HiddenActivation::silu;
}

void read_nomic_bert_gguf(ConfigReader& meta, ArchSpec& spec) { set_nomic_bert(meta, spec); }

void refuse_field(ConfigReader& config, const char* field, bool refused) {
  if (refused) config.fail(Error::unsupported(fmt::format("{}: {} in a nomic_bert", config.source(), field)));
}

void read_nomic_bert(ConfigReader& config, ArchSpec& spec) {
  spec.vocab = config.count("vocab_size", 1, kMaxVocab);
  spec.width = config.count("n_embd", 1, kMaxWidth);
  spec.heads = config.count("n_head", 1, kMaxWidth);
  spec.kv_heads = spec.heads;
  spec.head_dim = spec.width / spec.heads;
  spec.hidden = config.count("n_inner", 1, kMaxWidth);
  // Past the trained positions the base of the rotations would grow with the text.
  spec.context = std::min(config.count_or("n_positions", kTrainedPositions, 1, kMaxContext),
                          config.count_or("max_trained_positions", kTrainedPositions, 1, kMaxContext));
  spec.norm_eps = static_cast<float>(config.number_or("layer_norm_epsilon", 1e-12));
  spec.layers.assign(static_cast<size_t>(config.count("n_layer", 1, kMaxLayers)), LayerSpec{});
  RopeSpec rope;
  rope.rotated = spec.head_dim;
  rope.theta = config.number_or("rotary_emb_base", 10000.0);
  spec.ropes = {rope};
  set_nomic_bert(config, spec);
  refuse_field(config, "rotary_emb_fraction", config.number_or("rotary_emb_fraction", 1.0) != 1.0);
  refuse_field(config, "rotary_emb_interleaved", config.flag_or("rotary_emb_interleaved", false));
  refuse_field(config, "rotary_emb_scale_base", config.has("rotary_emb_scale_base"));
  refuse_field(config, "prenorm", config.flag_or("prenorm", false));
  refuse_field(config, "causal", config.flag_or("causal", false));
  refuse_field(config, "use_rms_norm", config.flag_or("use_rms_norm", false));
  refuse_field(config, "activation_function", config.text_or("activation_function", "swiglu") != "swiglu");
  refuse_field(config, "moe_every_n_layers", config.count_or("moe_every_n_layers", 0, 0, kMaxLayers) > 0);
  for (const char* key : {"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"}) config.flag_or(key, false);
  config.value("rotary_scaling_factor");  // of longer texts
}

}  // namespace

const Arch kNomicBert = {
    .name = "nomic-bert",
    .huggingface = {"NomicBertModel", "NomicBertForPreTraining"},
    .huggingface_type = "nomic_bert",
    .summary = "BERT with rotary positions and SwiGLU, without biases",
    .paper = "Nussbaum et al., 2024, Nomic Embed: Training a Reproducible Long Context Text Embedder",
    .activation = HiddenActivation::silu,
    .common_huggingface = false,
    .read_gguf = read_nomic_bert_gguf,
    .read_huggingface = read_nomic_bert,
    .names = {{"token_embd.weight", "bert.embeddings.word_embeddings.weight"},
              {"token_types.weight", "bert.embeddings.token_type_embeddings.weight"},
              {"token_embd_norm.weight", "bert.emb_ln.weight"},
              {"token_embd_norm.bias", "bert.emb_ln.bias"},
              {"blk.{l}.attn_qkv.weight", "bert.encoder.layers.{l}.attn.Wqkv.weight"},
              {"blk.{l}.attn_qkv.bias", "bert.encoder.layers.{l}.attn.Wqkv.bias"},
              {"blk.{l}.attn_output.weight", "bert.encoder.layers.{l}.attn.out_proj.weight"},
              {"blk.{l}.attn_output.bias", "bert.encoder.layers.{l}.attn.out_proj.bias"},
              {"blk.{l}.attn_output_norm.weight", "bert.encoder.layers.{l}.norm1.weight"},
              {"blk.{l}.attn_output_norm.bias", "bert.encoder.layers.{l}.norm1.bias"},
              {"blk.{l}.ffn_up.weight", "bert.encoder.layers.{l}.mlp.fc11.weight"},
              {"blk.{l}.ffn_up.bias", "bert.encoder.layers.{l}.mlp.fc11.bias"},
              {"blk.{l}.ffn_gate.weight", "bert.encoder.layers.{l}.mlp.fc12.weight"},
              {"blk.{l}.ffn_gate.bias", "bert.encoder.layers.{l}.mlp.fc12.bias"},
              {"blk.{l}.ffn_down.weight", "bert.encoder.layers.{l}.mlp.fc2.weight"},
              {"blk.{l}.ffn_down.bias", "bert.encoder.layers.{l}.mlp.fc2.bias"},
              {"blk.{l}.layer_output_norm.weight", "bert.encoder.layers.{l}.norm2.weight"},
              {"blk.{l}.layer_output_norm.bias", "bert.encoder.layers.{l}.norm2.bias"}},
};

}  // namespace millrace
