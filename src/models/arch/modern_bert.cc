// ModernBERT: BERT with norms before its blocks, a gated MLP, rotations in place of learned positions, and windows of
// local_attention keys in all layers but every third. The first layer's attention has no norm before it: the norm of
// the embeddings is there already.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/encoders.h"

namespace millrace {
namespace {

constexpr int64_t kModernGlobalEvery = 3;
constexpr double kModernLocalTheta = 10000.0, kModernGlobalTheta = 160000.0;

void set_modern_bert(ConfigReader& config, ArchSpec& spec, int64_t window, int64_t global_every) {
  set_encoder(config, spec);
  spec.norm = NormKind::layer;
  spec.embedding_norm = true;
  if (!spec.layers.empty()) spec.layers[0].mixer_norm = false;
  for (int64_t i = 0; i < spec.layer_count(); ++i)
    spec.layers[static_cast<size_t>(i)].window = global_every > 0 && i % global_every == 0 ? 0 : window;
}

// Layers with a window rotate by a base of their own.
void set_local_rope(ArchSpec& spec, double theta) {
  RopeSpec local;
  local.rotated = spec.ropes[0].rotated;
  local.theta = theta;
  spec.ropes.push_back(local);
  for (LayerSpec& layer : spec.layers) layer.rope = layer.window > 0 ? 1 : 0;
}

void read_modern_bert_gguf(ConfigReader& meta, ArchSpec& spec) {
  const int64_t window = meta.count_or("attention.sliding_window", 0, 0, kMaxContext);
  const int64_t every = meta.is_array("attention.sliding_window_pattern")
                            ? kModernGlobalEvery
                            : meta.count_or("attention.sliding_window_pattern", kModernGlobalEvery, 0, kMaxLayers);
  set_modern_bert(meta, spec, window, every);
  std::vector<double> sliding;
  if (meta.is_array("attention.sliding_window_pattern"))
    sliding = meta.numbers_or_empty("attention.sliding_window_pattern");
  for (size_t i = 0; i < sliding.size() && i < spec.layers.size(); ++i)
    spec.layers[i].window = sliding[i] != 0 ? window : 0;
  set_local_rope(spec, meta.number_or("rope.freq_base_swa", kModernLocalTheta));
}

void read_modern_bert(ConfigReader& config, ArchSpec& spec) {
  const int64_t window = config.count_or("local_attention", 128, 0, kMaxContext);
  set_modern_bert(config, spec, window,
                  config.count_or("global_attn_every_n_layers", kModernGlobalEvery, 1, kMaxLayers));
  spec.norm_eps = static_cast<float>(config.number_or("norm_eps", 1e-5));
  if (!config.has("hidden_activation")) spec.activation = HiddenActivation::gelu_erf;
  // The files of some releases name BERT's kind of positions, and have none.
  config.text_or("position_embedding_type", "");
  for (const char* key : {"norm_bias", "classifier_bias", "decoder_bias"})
    config.flag_or(key, false);       // the tensors tell
  if (spec.ropes.size() > 1) return;  // by type of layer
  spec.ropes[0].theta = config.number_or("global_rope_theta", kModernGlobalTheta);
  set_local_rope(spec, config.number_or("local_rope_theta", kModernLocalTheta));
}

void write_modern_bert_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  auto& sliding = meta["attention.sliding_window_pattern"] = nlohmann::ordered_json::array();
  for (const LayerSpec& layer : spec.layers) sliding.push_back(layer.window > 0 ? 1 : 0);
  if (spec.ropes.size() > 1) meta["rope.freq_base_swa"] = spec.ropes[1].theta;
}

}  // namespace

const Arch kModernBert = {
    .name = "modern-bert",
    .huggingface = {"ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"},
    .huggingface_type = "modernbert",
    .summary = "Encoder: norms before blocks, GeGLU, windows with a rope of their own in two of three layers",
    .paper = "Warner et al., 2024, Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder",
    .activation = HiddenActivation::gelu_erf,
    .read_gguf = read_modern_bert_gguf,
    .read_huggingface = read_modern_bert,
    .harmless_fields = {"initializer_cutoff_factor", "repad_logits_with_grad"},
    .names = {{"token_embd.weight", "model.embeddings.tok_embeddings.weight"},
              {"token_embd_norm.weight", "model.embeddings.norm.weight"},
              {"token_embd_norm.bias", "model.embeddings.norm.bias"},
              {"output_norm.weight", "model.final_norm.weight"},
              {"output_norm.bias", "model.final_norm.bias"},
              {"blk.{l}.attn_norm.weight", "model.layers.{l}.attn_norm.weight"},
              {"blk.{l}.attn_norm.bias", "model.layers.{l}.attn_norm.bias"},
              {"blk.{l}.attn_qkv.weight", "model.layers.{l}.attn.Wqkv.weight"},
              {"blk.{l}.attn_qkv.bias", "model.layers.{l}.attn.Wqkv.bias"},
              {"blk.{l}.attn_output.weight", "model.layers.{l}.attn.Wo.weight"},
              {"blk.{l}.attn_output.bias", "model.layers.{l}.attn.Wo.bias"},
              {"blk.{l}.ffn_norm.weight", "model.layers.{l}.mlp_norm.weight"},
              {"blk.{l}.ffn_norm.bias", "model.layers.{l}.mlp_norm.bias"},
              {"blk.{l}.ffn_up.weight", "model.layers.{l}.mlp.Wi.weight"},
              {"blk.{l}.ffn_down.weight", "model.layers.{l}.mlp.Wo.weight"},
              {"blk.{l}.ffn_down.bias", "model.layers.{l}.mlp.Wo.bias"},
              {"cls.weight", "head.dense.weight"},
              {"cls.bias", "head.dense.bias"},
              {"cls.norm.weight", "head.norm.weight"},
              {"cls.norm.bias", "head.norm.bias"},
              {"cls.output.weight", "classifier.weight"},
              {"cls.output.bias", "classifier.bias"}},
    .write_gguf = write_modern_bert_gguf,
};

}  // namespace millrace
