#include "models/document_encoder/document_encoder.h"

#include <fmt/format.h>

#include <cmath>

#include "models/arch/common.h"
#include "models/arch/unread_fields.h"
#include "models/blocks/blocks.h"
#include "models/blocks/rope.h"
#include "models/layer_mixers.h"
#include "models/visible.h"
#include "models/weight_loader.h"
#include "models/weight_packer.h"

namespace millrace {
namespace {

const std::vector<TensorName> kEncoderNames = {
    {"token_embd.weight", "encoder.embed_tokens.weight"},
    {"output_norm.weight", "encoder.norm.weight"},
    {"blk.{l}.attn_norm.weight", "encoder.layers.{l}.input_layernorm.weight"},
    {"blk.{l}.attn_q.weight", "encoder.layers.{l}.self_attn.q_proj.weight"},
    {"blk.{l}.attn_k.weight", "encoder.layers.{l}.self_attn.k_proj.weight"},
    {"blk.{l}.attn_v.weight", "encoder.layers.{l}.self_attn.v_proj.weight"},
    {"blk.{l}.attn_output.weight", "encoder.layers.{l}.self_attn.o_proj.weight"},
    {"blk.{l}.ffn_norm.weight", "encoder.layers.{l}.post_attention_layernorm.weight"},
    {"blk.{l}.ffn_gate.weight", "encoder.layers.{l}.mlp.gate_proj.weight"},
    {"blk.{l}.ffn_up.weight", "encoder.layers.{l}.mlp.up_proj.weight"},
    {"blk.{l}.ffn_down.weight", "encoder.layers.{l}.mlp.down_proj.weight"},
};
const Arch kEncoderParts = {
    .name = "cepe encoder", .huggingface_type = "", .summary = "", .paper = "", .names = kEncoderNames};

constexpr int64_t kLongestPiece = 1 << 16;

}  // namespace

Result<std::unique_ptr<DocumentEncoder>> DocumentEncoder::load(std::shared_ptr<const ModelFiles> files,
                                                               const KernelTable& table, ThreadPool& pool,
                                                               std::shared_ptr<MemoryAccounts> accounts) {
  auto made = std::unique_ptr<DocumentEncoder>(new DocumentEncoder());
  made->files_ = std::move(files);
  MILLRACE_TRY_VOID(made->read_config());
  MILLRACE_TRY_VOID(made->load_weights(table, pool, std::move(accounts)));
  return made;
}

Result<void> DocumentEncoder::read_config() {
  const std::string source = files_->path + "/config.json";
  ConfigReader whole(*files_->config, source);
  if (!whole.has("encoder_config"))
    return Error::unsupported(
        fmt::format("{}: encoder_config is missing: this is no checkpoint with a document encoder", source));
  ConfigReader config = whole.object("encoder_config");
  const std::string type = config.text_or("model_type", "llama");
  read_common_huggingface(config, spec_);
  start_token_ = static_cast<TokenId>(config.count_or("bos_token_id", -1, -1, spec_.vocab - 1));
  constexpr std::string_view kHarmlessInEncoders[] = {"is_causal"};  // encoders see all tokens
  refuse_unread_fields(config, spec_, type, kHarmlessInEncoders);
  MILLRACE_TRY_VOID(config.status());
  if (type != "llama")
    return Error::unsupported(fmt::format("{}: encoder of type '{}'; llama is supported", source, type));
  spec_.arch = "cepe";
  spec_.context = std::min(spec_.context, kLongestPiece);
  spec_.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  for (LayerSpec& layer : spec_.layers) {
    set_own_sizes(spec_, layer);
    if (const std::string problem = mixers_problem(spec_, layer); !problem.empty())
      return Error::corrupt(fmt::format("{}: encoder_config: {}", source, problem));
  }
  if (!(spec_.norm_eps >= 0.0f && spec_.norm_eps < 1.0f))
    return Error::corrupt(fmt::format("{}: encoder_config: norm epsilon {}", source, spec_.norm_eps));
  for (const RopeSpec& rope : spec_.ropes) {
    if (rope.scaling == RopeSpec::Scaling::longrope)
      return Error::unsupported(fmt::format("{}: encoder_config: rope scaling longrope", source));
    if (!(rope.theta > 0.0)) return Error::corrupt(fmt::format("{}: encoder_config: rope base {}", source, rope.theta));
    ropes_.frequencies.push_back(rope_frequencies(rope, spec_.context));
    ropes_.scales.push_back(rope_scale(rope));
  }
  return {};
}

Result<void> DocumentEncoder::load_layer(WeightLoader& loader, int64_t index) {
  const LayerSpec& sizes = spec_.layers[static_cast<size_t>(index)];
  LayerWeights& layer = layers_[static_cast<size_t>(index)];
  const std::string prefix = fmt::format("blk.{}.", index);
  const int64_t width = spec_.width, q = sizes.heads * sizes.head_dim, kv = sizes.kv_heads * sizes.head_dim;
  MILLRACE_TRY(layer.attention_norm.scale, loader.vector(prefix + "attn_norm.weight", width));
  MILLRACE_TRY(layer.q, loader.matrix(prefix + "attn_q.weight", q, width));
  MILLRACE_TRY(layer.k, loader.matrix(prefix + "attn_k.weight", kv, width));
  MILLRACE_TRY(layer.v, loader.matrix(prefix + "attn_v.weight", kv, width));
  MILLRACE_TRY(layer.output, loader.matrix(prefix + "attn_output.weight", width, q));
  MILLRACE_TRY(layer.mlp_norm.scale, loader.vector(prefix + "ffn_norm.weight", width));
  MILLRACE_TRY(layer.mlp.gate, loader.matrix(prefix + "ffn_gate.weight", sizes.hidden, width));
  MILLRACE_TRY(layer.mlp.up, loader.matrix(prefix + "ffn_up.weight", sizes.hidden, width));
  MILLRACE_TRY(layer.mlp.down, loader.matrix(prefix + "ffn_down.weight", width, sizes.hidden));
  MILLRACE_TRY_VOID(check_draft_formats(*files_, layer.q, {&layer.k, &layer.v}));
  return check_draft_formats(*files_, layer.mlp.up, {&layer.mlp.gate});
}

Result<void> DocumentEncoder::load_weights(const KernelTable& table, ThreadPool& pool,
                                           std::shared_ptr<MemoryAccounts> accounts) {
  WeightLoader loader(*files_, kEncoderParts);
  MILLRACE_TRY(const Weight embedding, loader.matrix("token_embd.weight", spec_.vocab, spec_.width));
  const StoredTensor& stored = *loader.find("token_embd.weight");
  if (embedding.parts || embedding.codebook || !stored.scales.values.empty())
    return Error::unsupported(
        fmt::format("{}: tensor {}: an embedding table with parts or scales", files_->path, stored.name));
  MILLRACE_TRY_VOID(check_rows_finite(embedding, 0, embedding.rows));
  embedding_ = stored.tensor;
  MILLRACE_TRY(output_norm_.scale, loader.vector("output_norm.weight", spec_.width));
  layers_.resize(spec_.layers.size());
  std::vector<Weight*> all;
  for (int64_t i = 0; i < spec_.layer_count(); ++i) {
    MILLRACE_TRY_VOID(load_layer(loader, i));
    LayerWeights& layer = layers_[static_cast<size_t>(i)];
    all.insert(all.end(),
               {&layer.q, &layer.k, &layer.v, &layer.output, &layer.mlp.gate, &layer.mlp.up, &layer.mlp.down});
  }
  return weights_.pack(*files_, all, table, pool, std::move(accounts), kEncoderAccount, kEncoderAdvice);
}

// One pass over the rows: adds the last block's output, then norm, then rounding for `next`; null: without rounding.
ActivationRows DocumentEncoder::add_and_norm(bool add, const NormWeights& norm, const Weight* next, int64_t tokens,
                                             ForwardContext& context) const {
  const int64_t width = spec_.width;
  const KernelTable& kernels = context.kernels();
  float* residual = context.residual.as<float>();
  float* normed = context.normed.as<float>();
  ActivationRows x;
  if (next) x = activation_rows(next->format->activation, tokens, width, context.encoded.data());
  for_rows(context, tokens, 3 * width, [&](int64_t t) {
    if (add) kernels.add(context.block_out.as<float>() + t * width, residual + t * width, width);
    norm_row(spec_, norm, kernels, residual + t * width, normed + t * width);
    if (next) encode_row(kernels, x, t, normed + t * width, context.encoded.data());
  });
  return x;
}

void DocumentEncoder::forward(std::span<const TokenId> tokens, std::span<const BlockId> blocks, Batch& batch,
                              ForwardContext& context) const {
  const int64_t count = std::ssize(tokens), width = spec_.width;
  batch.clear();
  batch.tokens.assign(tokens.begin(), tokens.end());
  batch.block_tables.assign(blocks.begin(), blocks.end());
  batch.spans.push_back({0, count, 0, 0, std::ssize(blocks)});
  const KeySegment all{0, count};
  add_visibility({.segments = {&all, 1}, .whole = true}, batch);
  const RowCodec& codec = *context.kernels().find_codec(embedding_.format);
  const int64_t stride = embedding_.format->row_bytes(width);
  for_rows(context, count, 2 * width, [&](int64_t t) {
    codec.decode(embedding_.data + tokens[static_cast<size_t>(t)] * stride, context.residual.as<float>() + t * width,
                 width);
    fill_rope_row(spec_, ropes_.frequencies, ropes_.scales, static_cast<int32_t>(t), t, context);
  });
  for (int64_t i = 0; i < spec_.layer_count(); ++i) {
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(i)];
    const LayerWeights& weights = layers_[static_cast<size_t>(i)];
    const ActivationRows x = add_and_norm(i > 0, weights.attention_norm, &weights.q, count, context);
    attention_keys(spec_, layer, i, weights, batch, x, context);
    attention_block(spec_, layer, i, weights, batch, context);
    const ActivationRows y = add_and_norm(true, weights.mlp_norm, &weights.mlp.up, count, context);
    mlp_block(spec_, LinearId{.layer = static_cast<int32_t>(i)}, weights.mlp, layer.hidden, y, context);
  }
  add_and_norm(true, output_norm_, nullptr, count, context);
}

}  // namespace millrace
