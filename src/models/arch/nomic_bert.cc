// Nomic's BERTs: rotations in place of learned positions. The first has a gated MLP without biases. The second has
// BERT's MLP, and in every second layer a mixture of experts without gates, whose sum has one bias.
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
  set_bert_encoder(config, spec);
  spec.activation = HiddenActivation::silu;
}

void read_nomic_bert_gguf(ConfigReader& meta, ArchSpec& spec) { set_nomic_bert(meta, spec); }

void refuse_field(ConfigReader& config, const char* field, bool refused) {
  if (refused) config.fail(Error::unsupported(fmt::format("{}: {} in a nomic_bert", config.source(), field)));
}

// Reads the fields that both families have, except those of the MLP.
void read_sizes(ConfigReader& config, ArchSpec& spec) {
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
  for (const char* key : {"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"}) config.flag_or(key, false);
  config.value("rotary_scaling_factor");  // of longer texts
}

void read_nomic_bert(ConfigReader& config, ArchSpec& spec) {
  read_sizes(config, spec);
  refuse_field(config, "activation_function", config.text_or("activation_function", "swiglu") != "swiglu");
  refuse_field(config, "moe_every_n_layers", config.count_or("moe_every_n_layers", 0, 0, kMaxLayers) > 0);
}

// ---- the mixture of experts ----

bool has_experts(const nlohmann::ordered_json& config) {
  const auto every = config.find("moe_every_n_layers");
  return every != config.end() && every->is_number() && *every > 0;
}

// Layer i has experts if i mod `every` is 1.
void set_experts(ConfigReader& config, ArchSpec& spec, int64_t every) {
  spec.gated = false;
  spec.activation = HiddenActivation::gelu_erf;
  spec.moe.hidden = spec.hidden;
  bool any = false;
  for (int64_t i = 0; i < spec.layer_count(); ++i)
    any |= spec.layers[static_cast<size_t>(i)].moe = i % std::max<int64_t>(1, every) == 1;
  if (!any)
    config.fail(Error::unsupported(fmt::format("{}: moe_every_n_layers is {}: none of {} layers has experts",
                                               config.source(), every, spec.layer_count())));
}

void read_nomic_bert_moe_gguf(ConfigReader& meta, ArchSpec& spec) {
  set_nomic_bert(meta, spec);
  meta.count("expert_count", 1, kMaxExperts);  // read_common_gguf() has read the count; here it is required
  set_experts(meta, spec, meta.count("moe_every_n_layers", 0, kMaxLayers));
  spec.moe.normalize = meta.flag_or("expert_weights_norm", false);
}

void read_nomic_bert_moe(ConfigReader& config, ArchSpec& spec) {
  read_sizes(config, spec);
  set_experts(config, spec, config.count("moe_every_n_layers", 0, kMaxLayers));
  spec.moe.experts = config.count("num_experts", 1, kMaxExperts);
  spec.moe.used = config.count_or("moe_top_k", 1, 1, spec.moe.experts);
  spec.moe.normalize = config.flag_or("moe_normalize_expert_weights", false);
  refuse_field(config, "activation_function", config.text_or("activation_function", "gelu") != "gelu");
  refuse_field(config, "num_shared_experts", config.count_or("num_shared_experts", 0, 0, kMaxExperts) > 0);
  refuse_field(config, "expert_choice_router", config.flag_or("expert_choice_router", false));
  refuse_field(config, "ffn_div", config.number_or("ffn_div", 1.0) != 1.0);
}

void write_nomic_bert_moe_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  int64_t every = spec.layer_count();
  for (int64_t i = 2; i < spec.layer_count(); ++i)
    if (spec.layers[static_cast<size_t>(i)].moe) every = std::min(every, i - 1);
  meta["moe_every_n_layers"] = std::max<int64_t>(2, every);
  if (spec.moe.normalize) meta["expert_weights_norm"] = true;
}

// Returns the names of both families, after those of `mlp`.
std::vector<TensorName> nomic_names(std::vector<TensorName> mlp) {
  const std::initializer_list<TensorName> shared = {
      {"token_embd.weight", "bert.embeddings.word_embeddings.weight"},
      {"token_types.weight", "bert.embeddings.token_type_embeddings.weight"},
      {"token_embd_norm.weight", "bert.emb_ln.weight"},
      {"token_embd_norm.bias", "bert.emb_ln.bias"},
      {"blk.{l}.attn_qkv.weight", "bert.encoder.layers.{l}.attn.Wqkv.weight"},
      {"blk.{l}.attn_qkv.bias", "bert.encoder.layers.{l}.attn.Wqkv.bias"},
      {"blk.{l}.attn_output.weight", "bert.encoder.layers.{l}.attn.out_proj.weight"},
      {"blk.{l}.attn_output.bias", "bert.encoder.layers.{l}.attn.out_proj.bias"},
      {"blk.{l}.attn_output_norm.weight", "bert.encoder.layers.{l}.norm1.weight"},
      {"blk.{l}.attn_output_norm.bias", "bert.encoder.layers.{l}.norm1.bias"},
      {"blk.{l}.ffn_down.weight", "bert.encoder.layers.{l}.mlp.fc2.weight"},
      {"blk.{l}.ffn_down.bias", "bert.encoder.layers.{l}.mlp.fc2.bias"},
      {"blk.{l}.layer_output_norm.weight", "bert.encoder.layers.{l}.norm2.weight"},
      {"blk.{l}.layer_output_norm.bias", "bert.encoder.layers.{l}.norm2.bias"}};
  mlp.insert(mlp.end(), shared);
  return mlp;
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
    .names = nomic_names({{"blk.{l}.ffn_up.weight", "bert.encoder.layers.{l}.mlp.fc11.weight"},
                          {"blk.{l}.ffn_up.bias", "bert.encoder.layers.{l}.mlp.fc11.bias"},
                          {"blk.{l}.ffn_gate.weight", "bert.encoder.layers.{l}.mlp.fc12.weight"},
                          {"blk.{l}.ffn_gate.bias", "bert.encoder.layers.{l}.mlp.fc12.bias"}}),
};

const Arch kNomicBertMoe = {
    .name = "nomic-bert-moe",
    .huggingface = {"NomicBertModel", "NomicBertForPreTraining"},
    .huggingface_type = "nomic_bert",
    .claims = has_experts,
    .summary = "BERT with rotary positions and, in every second layer, a mixture of experts without gates",
    .paper = "Nussbaum and Duderstadt, 2025, Training Sparse Mixture Of Experts Text Embedding Models",
    .activation = HiddenActivation::gelu_erf,
    .common_huggingface = false,
    .read_gguf = read_nomic_bert_moe_gguf,
    .read_huggingface = read_nomic_bert_moe,
    .names = nomic_names({{"blk.{l}.ffn_up.weight", "bert.encoder.layers.{l}.mlp.fc1.weight"},
                          {"blk.{l}.ffn_up.bias", "bert.encoder.layers.{l}.mlp.fc1.bias"},
                          {"blk.{l}.ffn_gate_inp.weight", "bert.encoder.layers.{l}.mlp.router.layer.weight"},
                          {"blk.{l}.ffn_up_exps.weight", "bert.encoder.layers.{l}.mlp.experts.mlp.w1"},
                          // [experts, hidden, width], which GGUF files hold as [experts, width, hidden]
                          {"blk.{l}.ffn_down_exps.transposed", "bert.encoder.layers.{l}.mlp.experts.mlp.w2"},
                          {"blk.{l}.ffn_down_shexp.bias", "bert.encoder.layers.{l}.mlp.experts.bias"}}),
    .write_gguf = write_nomic_bert_moe_gguf,
};

}  // namespace millrace
