// Jina's BERTs. The second: biases of attention by distance (ALiBi) in place of learned positions, and GeGLU. The
// third: XLM-RoBERTa with rotations in place of learned positions; its folder has adapters for tasks, which are not
// used.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/encoders.h"

namespace millrace {
namespace {

constexpr float kAlibi = 8.0f;  // exponent of the last head's slope

void set_jina_bert(ConfigReader& config, ArchSpec& spec) {
  set_bert_encoder(config, spec);
  spec.alibi = kAlibi;
  spec.ropes.clear();
  for (LayerSpec& layer : spec.layers) layer.rope = -1;
}

void read_jina_bert_gguf(ConfigReader& meta, ArchSpec& spec) {
  set_jina_bert(meta, spec);
  spec.alibi = static_cast<float>(meta.number_or("attention.max_alibi_bias", static_cast<double>(kAlibi)));
}

void read_jina_bert(ConfigReader& config, ArchSpec& spec) {
  set_jina_bert(config, spec);
  spec.norm_eps = static_cast<float>(config.number_or("layer_norm_eps", 1e-12));
  if (!config.has("hidden_act")) spec.activation = HiddenActivation::gelu_erf;
  config.count_or("alibi_starting_size", 512, 1, kMaxContext);  // size of a table
  if (const std::string kind = config.text_or("position_embedding_type", "alibi"); kind != "alibi")
    config.fail(Error::unsupported(fmt::format("{}: position_embedding_type '{}'", config.source(), kind)));
  if (const std::string kind = config.text_or("feed_forward_type", "geglu"); kind != "geglu")
    config.fail(Error::unsupported(fmt::format("{}: feed_forward_type '{}'", config.source(), kind)));
}

// ---- the third ----

bool rotates(const nlohmann::ordered_json& config) {
  const auto kind = config.find("position_embedding_type");
  return kind != config.end() && *kind == "rotary";
}

void set_jina_bert3(ConfigReader& config, ArchSpec& spec) {
  set_bert_encoder(config, spec);
  spec.gated = false;
}

void read_jina_bert3_gguf(ConfigReader& meta, ArchSpec& spec) { set_jina_bert3(meta, spec); }

void read_jina_bert3(ConfigReader& config, ArchSpec& spec) {
  set_jina_bert3(config, spec);
  spec.norm_eps = static_cast<float>(config.number_or("layer_norm_eps", 1e-5));
  if (!config.has("hidden_act")) spec.activation = HiddenActivation::gelu_erf;
  spec.ropes[0].theta = config.number_or("rotary_emb_base", 10000.0);
  config.text_or("position_embedding_type", "rotary");  // see rotates()
  // Tables of positions count from the padding token's id plus one. This family has no table, and keeps the same
  // maximum length.
  spec.context -= config.count_or("pad_token_id", 1, 0, spec.context - 2) + 1;
}

}  // namespace

const Arch kJinaBert2 = {
    .name = "jina-bert-v2",
    .huggingface = {"JinaBertModel", "JinaBertForMaskedLM", "JinaBertForSequenceClassification"},
    .huggingface_type = "jina_bert",
    .summary = "BERT with ALiBi and GeGLU",
    .paper =
        "Guenther et al., 2023, Jina Embeddings 2: 8192-Token General-Purpose Text Embeddings for Long Documents; "
        "Press et al., 2022, Train Short, Test Long: Attention with Linear Biases",
    .activation = HiddenActivation::gelu_erf,
    .read_gguf = read_jina_bert_gguf,
    .read_huggingface = read_jina_bert,
    .names = {{"token_embd.weight", "bert.embeddings.word_embeddings.weight"},
              {"token_types.weight", "bert.embeddings.token_type_embeddings.weight"},
              {"token_embd_norm.weight", "bert.embeddings.LayerNorm.weight"},
              {"token_embd_norm.bias", "bert.embeddings.LayerNorm.bias"},
              {"blk.{l}.attn_q.weight", "bert.encoder.layer.{l}.attention.self.query.weight"},
              {"blk.{l}.attn_q.bias", "bert.encoder.layer.{l}.attention.self.query.bias"},
              {"blk.{l}.attn_k.weight", "bert.encoder.layer.{l}.attention.self.key.weight"},
              {"blk.{l}.attn_k.bias", "bert.encoder.layer.{l}.attention.self.key.bias"},
              {"blk.{l}.attn_v.weight", "bert.encoder.layer.{l}.attention.self.value.weight"},
              {"blk.{l}.attn_v.bias", "bert.encoder.layer.{l}.attention.self.value.bias"},
              {"blk.{l}.attn_output.weight", "bert.encoder.layer.{l}.attention.output.dense.weight"},
              {"blk.{l}.attn_output.bias", "bert.encoder.layer.{l}.attention.output.dense.bias"},
              {"blk.{l}.attn_output_norm.weight", "bert.encoder.layer.{l}.attention.output.LayerNorm.weight"},
              {"blk.{l}.attn_output_norm.bias", "bert.encoder.layer.{l}.attention.output.LayerNorm.bias"},
              {"blk.{l}.ffn_up.weight", "bert.encoder.layer.{l}.mlp.gated_layers.weight"},
              {"blk.{l}.ffn_up.bias", "bert.encoder.layer.{l}.mlp.gated_layers.bias"},
              {"blk.{l}.ffn_down.weight", "bert.encoder.layer.{l}.mlp.wo.weight"},
              {"blk.{l}.ffn_down.bias", "bert.encoder.layer.{l}.mlp.wo.bias"},
              {"blk.{l}.layer_output_norm.weight", "bert.encoder.layer.{l}.mlp.layernorm.weight"},
              {"blk.{l}.layer_output_norm.bias", "bert.encoder.layer.{l}.mlp.layernorm.bias"},
              {"cls.weight", "bert.pooler.dense.weight"},
              {"cls.bias", "bert.pooler.dense.bias"},
              {"cls.output.weight", "classifier.weight"},
              {"cls.output.bias", "classifier.bias"}},
};

const Arch kJinaBert3 = {
    .name = "jina-bert-v3",
    .huggingface = {"XLMRobertaModel"},
    .huggingface_type = "xlm-roberta",
    .claims = rotates,
    .summary = "XLM-RoBERTa with rotary positions",
    .paper = "Sturua et al., 2024, jina-embeddings-v3: Multilingual Embeddings With Task LoRA",
    .activation = HiddenActivation::gelu_erf,
    .read_gguf = read_jina_bert3_gguf,
    .read_huggingface = read_jina_bert3,
    .names = {{"token_embd.weight", "roberta.embeddings.word_embeddings.weight"},
              {"token_types.weight", "roberta.embeddings.token_type_embeddings.weight"},
              {"token_embd_norm.weight", "roberta.emb_ln.weight"},
              {"token_embd_norm.bias", "roberta.emb_ln.bias"},
              {"blk.{l}.attn_qkv.weight", "roberta.encoder.layers.{l}.mixer.Wqkv.weight"},
              {"blk.{l}.attn_qkv.bias", "roberta.encoder.layers.{l}.mixer.Wqkv.bias"},
              {"blk.{l}.attn_output.weight", "roberta.encoder.layers.{l}.mixer.out_proj.weight"},
              {"blk.{l}.attn_output.bias", "roberta.encoder.layers.{l}.mixer.out_proj.bias"},
              {"blk.{l}.attn_output_norm.weight", "roberta.encoder.layers.{l}.norm1.weight"},
              {"blk.{l}.attn_output_norm.bias", "roberta.encoder.layers.{l}.norm1.bias"},
              {"blk.{l}.ffn_up.weight", "roberta.encoder.layers.{l}.mlp.fc1.weight"},
              {"blk.{l}.ffn_up.bias", "roberta.encoder.layers.{l}.mlp.fc1.bias"},
              {"blk.{l}.ffn_down.weight", "roberta.encoder.layers.{l}.mlp.fc2.weight"},
              {"blk.{l}.ffn_down.bias", "roberta.encoder.layers.{l}.mlp.fc2.bias"},
              {"blk.{l}.layer_output_norm.weight", "roberta.encoder.layers.{l}.norm2.weight"},
              {"blk.{l}.layer_output_norm.bias", "roberta.encoder.layers.{l}.norm2.bias"}},
};

}  // namespace millrace
