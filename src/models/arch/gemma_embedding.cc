// EmbeddingGemma: Gemma 3's layers, bidirectional, with windows on both sides of a token. Dense layers behind the
// pooling are in evaluate/vector_head.h.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/encoders.h"

namespace millrace {
namespace {

void read_gemma_embedding_gguf(ConfigReader& meta, ArchSpec& spec) {
  kGemma3.read_gguf(meta, spec);
  set_encoder(meta, spec);
  for (const char* layer : {"dense_2", "dense_3"})  // sizes, which the tensors tell
    for (const char* side : {"_feat_in", "_feat_out"}) meta.has(std::string(layer) + side);
}

void read_gemma_embedding(ConfigReader& config, ArchSpec& spec) {
  kGemma3.read_huggingface(config, spec);
  if (!config.flag_or("use_bidirectional_attention", false))
    config.fail(
        Error::unsupported(fmt::format("{}: Gemma3TextModel without use_bidirectional_attention", config.source())));
  set_encoder(config, spec);
}

void write_gemma_embedding_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) { kGemma3.write_gguf(spec, meta); }

}  // namespace

const Arch kGemmaEmbedding = {
    .name = "gemma-embedding",
    .huggingface = {"Gemma3TextModel"},
    .huggingface_type = "gemma_embedding",
    .summary = "Encoder with Gemma 3's layers: windows on both sides of a token, two dense layers behind the pooling",
    .paper = "Vera et al., 2025, EmbeddingGemma: Powerful and Lightweight Text Representations",
    .activation = HiddenActivation::gelu_tanh,
    .read_gguf = read_gemma_embedding_gguf,
    .read_huggingface = read_gemma_embedding,
    .names = {{"blk.{l}.post_attention_norm.weight", "model.layers.{l}.post_attention_layernorm.weight"},
              {"blk.{l}.ffn_norm.weight", "model.layers.{l}.pre_feedforward_layernorm.weight"},
              {"blk.{l}.post_ffw_norm.weight", "model.layers.{l}.post_feedforward_layernorm.weight"}},
    .write_gguf = write_gemma_embedding_gguf,
};

}  // namespace millrace
