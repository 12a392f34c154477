#include "models/model.h"

#include <algorithm>

#include "models/blocks/blocks.h"
#include "models/model_builder.h"

namespace millrace {

Result<std::unique_ptr<Model>> Model::load(std::shared_ptr<const ModelFiles> files, const KernelTable& table, ThreadPool& pool,
                                           const ModelOptions& options) {
  MILLRACE_TRY(ArchSpec spec, read_arch_spec(*files));
  const Arch& arch = *find_arch(*files);
  return ModelBuilder(std::move(files), arch, std::move(spec)).build(table, pool, options);
}

std::vector<KvLayer> Model::kv_layers() const {
  return std::vector<KvLayer>(spec_.layers.size(), KvLayer{spec_.kv_heads, spec_.head_dim});
}

void Model::embed(const Batch& batch, ForwardContext& context) const {
  const int64_t width = spec_.width;
  float* out = context.residual.as<float>();
  const RowCodec& codec = *context.kernels().find_codec(embedding_.format);
  const int64_t row_bytes = embedding_.format->row_bytes(width);
  context.pool().parallel_for(batch.size(), [&](int64_t t, int) {
    float* row = out + t * width;
    codec.decode(embedding_.data + batch.tokens[t] * row_bytes, row, width);
    if (spec_.embedding_scale != 1.0f) context.kernels().scale(row, spec_.embedding_scale, width);
    if (spec_.learned_positions) {
      float* position = context.normed.as<float>() + t * width;  // free until the first norm
      positions_.format->decode(positions_.data + batch.positions[t] * positions_.format->row_bytes(width), position, width);
      context.kernels().add(position, row, width);
    }
  });
}

void Model::forward(const Batch& batch, ForwardContext& context) const {
  const int64_t tokens = batch.size();
  const int64_t width = spec_.width;
  float* residual = context.residual.as<float>();
  float* normed = context.normed.as<float>();
  float* block_out = context.block_out.as<float>();
  auto add_block = [&](const NormWeights& post_norm) {
    if (!post_norm.scale.empty()) norm_rows(spec_, post_norm, context, block_out, tokens, block_out);
    context.pool().parallel_for(tokens, [&](int64_t t, int) {
      if (spec_.residual_scale == 1.0f) context.kernels().add(block_out + t * width, residual + t * width, width);
      else context.kernels().add_scaled(block_out + t * width, spec_.residual_scale, residual + t * width, width);
    });
  };
  embed(batch, context);
  fill_rope_tables(spec_, rope_frequencies_, rope_scales_, batch, context);
  for (int64_t i = 0; i < spec_.layer_count(); ++i) {
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(i)];
    const LayerWeights& weights = layers_[static_cast<size_t>(i)];
    norm_rows(spec_, weights.attention_norm, context, residual, tokens, normed);
    attention_block(spec_, layer, i, weights, batch, context);
    add_block(weights.attention_post_norm);
    norm_rows(spec_, weights.mlp_norm, context, residual, tokens, normed);
    if (layer.moe) moe_block(spec_, weights, tokens, context);
    else mlp_block(spec_, weights.mlp, spec_.hidden, tokens, context);
    add_block(weights.mlp_post_norm);
  }
  output(batch, context);
}

void Model::output(const Batch& batch, ForwardContext& context) const {
  const int64_t rows = static_cast<int64_t>(batch.output_rows.size());
  if (rows == 0) return;
  const int64_t width = spec_.width;
  float* gathered = context.block_out.as<float>();
  // Ascending and distinct, so a row is never overwritten before it is read.
  for (int64_t i = 0; i < rows; ++i)
    std::copy_n(context.residual.as<float>() + batch.output_rows[i] * width, width, gathered + i * width);
  norm_rows(spec_, output_norm_, context, gathered, rows, gathered);
  ActivationRows x = encode_activations(context.kernels(), context.pool(), head_.format->activation, gathered, width, rows, width,
                                        context.encoded.data());
  float* logits = context.logits();
  linear_bias(context, head_, head_bias_, x, logits, spec_.vocab);
  context.pool().parallel_for(rows, [&](int64_t i, int) {
    float* row = logits + i * spec_.vocab;
    if (spec_.logit_scale != 1.0f) context.kernels().scale(row, spec_.logit_scale, spec_.vocab);
    if (spec_.final_softcap > 0.0f) context.kernels().softcap(row, spec_.final_softcap, spec_.vocab);
  });
}

}  // namespace millrace
