#include "models/model.h"

#include <algorithm>

#include "models/blocks/blocks.h"
#include "models/lora/apply.h"
#include "models/model_builder.h"

namespace millrace {

Result<std::unique_ptr<Model>> Model::load(std::shared_ptr<const ModelFiles> files, const KernelTable& table,
                                           ThreadPool& pool, const ModelOptions& options) {
  MILLRACE_TRY(ArchSpec spec, read_arch_spec(*files));
  const Arch& arch = *find_arch(*files);
  return ModelBuilder(std::move(files), arch, std::move(spec)).build(table, pool, options);
}

std::vector<KvLayer> Model::kv_layers() const {
  return std::vector<KvLayer>(spec_.layers.size(), KvLayer{spec_.kv_heads, spec_.head_dim});
}

void Model::embed_row(const Batch& batch, int64_t t, ForwardContext& context) const {
  const int64_t width = spec_.width;
  const KernelTable& kernels = context.kernels();
  float* row = context.residual.as<float>() + t * width;
  kernels.find_codec(embedding_.format)
      ->decode(embedding_.data + batch.tokens[t] * embedding_.format->row_bytes(width), row, width);
  if (spec_.embedding_scale != 1.0f) kernels.scale(row, spec_.embedding_scale, width);
  if (!spec_.learned_positions) return;
  float* position = context.normed.as<float>() + t * width;  // unused until the first norm
  positions_.format->decode(positions_.data + batch.positions[t] * positions_.format->row_bytes(width), position,
                            width);
  kernels.add(position, row, width);
}

// residual += norm(block_out)
void Model::add_row(const NormWeights& post_norm, int64_t t, ForwardContext& context) const {
  const int64_t width = spec_.width;
  const KernelTable& kernels = context.kernels();
  float* out = context.block_out.as<float>() + t * width;
  float* residual = context.residual.as<float>() + t * width;
  if (!post_norm.scale.empty()) norm_row(spec_, post_norm, kernels, out, out);
  if (spec_.residual_scale == 1.0f)
    kernels.add(out, residual, width);
  else
    kernels.add_scaled(out, spec_.residual_scale, residual, width);
}

void Model::forward(const Batch& all, ForwardContext& context) const {
  int64_t tokens = all.size();
  const int64_t width = spec_.width;
  const KernelTable& kernels = context.kernels();
  const float* residual = context.residual.as<float>();
  float* normed = context.normed.as<float>();
  // One pass over the rows: `before`, then the norm, then rounding for the next matrix.
  auto start_block = [&](const NormWeights& norm, const Weight& next, const auto& before) {
    const ActivationRows rows = activation_rows(next.format->activation, tokens, width, context.encoded.data());
    for_rows(context, tokens, 2 * width, [&](int64_t t) {
      before(t);
      norm_row(spec_, norm, kernels, residual + t * width, normed + t * width);
      encode_row(kernels, rows, t, normed + t * width, context.encoded.data());
    });
    return rows;
  };
  const NormWeights* last_post_norm = nullptr;
  for (int64_t i = 0; i < spec_.layer_count(); ++i) {
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(i)];
    const LayerWeights& weights = layers_[static_cast<size_t>(i)];
    const ActivationRows x = start_block(weights.attention_norm, weights.q, [&](int64_t t) {
      if (last_post_norm) return add_row(*last_post_norm, t, context);
      embed_row(all, t, context);
      fill_rope_row(spec_, rope_frequencies_, rope_scales_, all.positions[t], t, context);
    });
    attention_keys(spec_, layer, i, weights, all, x, context);
    if (context.before_attention) context.before_attention(i);
    if (i == context.mass.layer && !context.mass.spans.empty()) observe_attention(spec_, layer, i, all, context);
    if (context.token_mass.wants(i)) observe_tokens(spec_, layer, i, all, context);
    const Batch* batch = &all;
    if (i + 1 == spec_.layer_count()) {  // the other tokens' outputs are not used
      if (all.output_rows.empty()) return;
      if (static_cast<int64_t>(all.output_rows.size()) < tokens) batch = &keep_outputs(spec_, all, context);
      tokens = batch->size();
    }
    attention_block(spec_, layer, i, weights, *batch, context);
    const Weight& first = layer.moe ? weights.router : weights.mlp.up;
    const ActivationRows y =
        start_block(weights.mlp_norm, first, [&](int64_t t) { add_row(weights.attention_post_norm, t, context); });
    if (layer.moe)
      moe_block(spec_, weights, y, context);
    else
      mlp_block(spec_, weights.mlp, spec_.hidden, y, context);
    last_post_norm = &weights.mlp_post_norm;
  }
  const ActivationRows x = start_block(output_norm_, head_, [&](int64_t t) { add_row(*last_post_norm, t, context); });
  if (!context.hidden_only) output(x, context);
}

void Model::output(const ActivationRows& x, ForwardContext& context) const {
  const KernelTable& kernels = context.kernels();
  float* logits = context.logits.as<float>();
  LinearPart head{.weight = &head_,
                  .x = x,
                  .y = logits,
                  .y_stride = spec_.vocab,
                  .bias = head_bias_.empty() ? nullptr : head_bias_.data()};
  linear(context.pool(), {&head, 1});
  if (!context.lora.empty()) add_lora(context, head_, context.normed.as<float>(), logits);
  if (spec_.logit_scale == 1.0f && spec_.final_softcap <= 0.0f) return;
  for_rows(context, x.tokens, spec_.vocab, [&](int64_t t) {
    float* row = logits + t * spec_.vocab;
    if (spec_.logit_scale != 1.0f) kernels.scale(row, spec_.logit_scale, spec_.vocab);
    if (spec_.final_softcap > 0.0f) kernels.softcap(row, spec_.final_softcap, spec_.vocab);
  });
}

}  // namespace millrace
