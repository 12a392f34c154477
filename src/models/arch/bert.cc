// BERT and RoBERTa. GGUF files of both have the architecture `bert`: converters drop RoBERTa's unused first positions.
// RoBERTa has one token type, and numbers positions from its padding token's id plus one.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/encoders.h"
#include "models/arch/writing.h"

namespace millrace {
namespace {

constexpr int64_t kRobertaPositions = 2;

void set_bert(ConfigReader& config, ArchSpec& spec) {
  set_bert_encoder(config, spec);
  spec.gated = false;
  spec.learned_positions = true;
  spec.ropes.clear();
  for (LayerSpec& layer : spec.layers) layer.rope = -1;
}

void read_bert_gguf(ConfigReader& meta, ArchSpec& spec) { set_bert(meta, spec); }

void read_bert(ConfigReader& config, ArchSpec& spec) {
  set_bert(config, spec);
  spec.norm_eps = static_cast<float>(config.number_or("layer_norm_eps", 1e-12));
  if (!config.has("hidden_act")) spec.activation = HiddenActivation::gelu_erf;
  if (const std::string kind = config.text_or("position_embedding_type", "absolute"); kind != "absolute")
    config.fail(Error::unsupported(fmt::format("{}: position_embedding_type '{}'", config.source(), kind)));
}

void read_roberta(ConfigReader& config, ArchSpec& spec) {
  read_bert(config, spec);
  if (!config.has("layer_norm_eps")) spec.norm_eps = 1e-5f;
  spec.first_position = config.count_or("pad_token_id", kRobertaPositions - 1, 0, spec.context - 2) + 1;
  spec.context -= spec.first_position;
}

}  // namespace

const Arch kBert = {
    .name = "bert",
    .huggingface = {"BertModel", "BertForMaskedLM", "BertForSequenceClassification"},
    .huggingface_type = "bert",
    .summary =
        "Encoder: bidirectional attention, a norm behind each sum, learned positions, token types, plain GELU MLP",
    .paper = "Devlin et al., 2019, BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    .activation = HiddenActivation::gelu_erf,
    .read_gguf = read_bert_gguf,
    .read_huggingface = read_bert,
    .names = {{"token_embd.weight", "bert.embeddings.word_embeddings.weight"},
              {"position_embd.weight", "bert.embeddings.position_embeddings.weight"},
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
              {"blk.{l}.ffn_up.weight", "bert.encoder.layer.{l}.intermediate.dense.weight"},
              {"blk.{l}.ffn_up.bias", "bert.encoder.layer.{l}.intermediate.dense.bias"},
              {"blk.{l}.ffn_down.weight", "bert.encoder.layer.{l}.output.dense.weight"},
              {"blk.{l}.ffn_down.bias", "bert.encoder.layer.{l}.output.dense.bias"},
              {"blk.{l}.layer_output_norm.weight", "bert.encoder.layer.{l}.output.LayerNorm.weight"},
              {"blk.{l}.layer_output_norm.bias", "bert.encoder.layer.{l}.output.LayerNorm.bias"},
              {"cls.weight", "bert.pooler.dense.weight"},
              {"cls.bias", "bert.pooler.dense.bias"},
              {"cls.output.weight", "classifier.weight"},
              {"cls.output.bias", "classifier.bias"}},
};

const Arch kRoberta = {
    .name = "roberta",
    .huggingface = {"RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification", "XLMRobertaModel",
                    "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"},
    .huggingface_type = "roberta",
    .summary = "BERT with positions from 2 on and one token type; XLM-RoBERTa has many languages",
    .paper = "Liu et al., 2019, RoBERTa: A Robustly Optimized BERT Pretraining Approach",
    .activation = HiddenActivation::gelu_erf,
    .read_gguf = read_bert_gguf,
    .read_huggingface = read_roberta,
    .names = {{"token_embd.weight", "roberta.embeddings.word_embeddings.weight"},
              {"position_embd.weight", "roberta.embeddings.position_embeddings.weight"},
              {"token_types.weight", "roberta.embeddings.token_type_embeddings.weight"},
              {"token_embd_norm.weight", "roberta.embeddings.LayerNorm.weight"},
              {"token_embd_norm.bias", "roberta.embeddings.LayerNorm.bias"},
              {"blk.{l}.attn_q.weight", "roberta.encoder.layer.{l}.attention.self.query.weight"},
              {"blk.{l}.attn_q.bias", "roberta.encoder.layer.{l}.attention.self.query.bias"},
              {"blk.{l}.attn_k.weight", "roberta.encoder.layer.{l}.attention.self.key.weight"},
              {"blk.{l}.attn_k.bias", "roberta.encoder.layer.{l}.attention.self.key.bias"},
              {"blk.{l}.attn_v.weight", "roberta.encoder.layer.{l}.attention.self.value.weight"},
              {"blk.{l}.attn_v.bias", "roberta.encoder.layer.{l}.attention.self.value.bias"},
              {"blk.{l}.attn_output.weight", "roberta.encoder.layer.{l}.attention.output.dense.weight"},
              {"blk.{l}.attn_output.bias", "roberta.encoder.layer.{l}.attention.output.dense.bias"},
              {"blk.{l}.attn_output_norm.weight", "roberta.encoder.layer.{l}.attention.output.LayerNorm.weight"},
              {"blk.{l}.attn_output_norm.bias", "roberta.encoder.layer.{l}.attention.output.LayerNorm.bias"},
              {"blk.{l}.ffn_up.weight", "roberta.encoder.layer.{l}.intermediate.dense.weight"},
              {"blk.{l}.ffn_up.bias", "roberta.encoder.layer.{l}.intermediate.dense.bias"},
              {"blk.{l}.ffn_down.weight", "roberta.encoder.layer.{l}.output.dense.weight"},
              {"blk.{l}.ffn_down.bias", "roberta.encoder.layer.{l}.output.dense.bias"},
              {"blk.{l}.layer_output_norm.weight", "roberta.encoder.layer.{l}.output.LayerNorm.weight"},
              {"blk.{l}.layer_output_norm.bias", "roberta.encoder.layer.{l}.output.LayerNorm.bias"},
              {"cls.weight", "classifier.dense.weight"},
              {"cls.bias", "classifier.dense.bias"},
              {"cls.output.weight", "classifier.out_proj.weight"},
              {"cls.output.bias", "classifier.out_proj.bias"}},
    .gguf_name = "bert",
};

}  // namespace millrace
