// A dense MLP and a mixture of experts on the same residual stream (Gemma 4, 26B-A4B). Each has a norm before it and
// one behind it; the sum of the two is the layer's output. The router reads the residual stream through a norm of its
// own, whose weights are LayerWeights::router_scale.
#include "models/blocks/blocks.h"

namespace millrace {

void mlp_and_experts_block(const ArchSpec& spec, const LayerSpec& layer, LinearId at, const LayerWeights& weights,
                           const ActivationRows& rows, ForwardContext& context) {
  const KernelTable& kernels = context.kernels();
  const int64_t tokens = rows.tokens, width = spec.width;
  float* out = context.block_out.as<float>();
  float* beside = context.beside.as<float>();
  float* normed = context.normed.as<float>();
  const float* residual = context.residual.as<float>();
  mlp_block(spec, at, weights.mlp, layer.hidden, rows, context);
  const ActivationRows routed = rows_for(weights.router, tokens, width, context.encoded.data());
  for_rows(context, tokens, 3 * width, [&](int64_t t) {
    norm_row(spec, weights.mlp_inner_norm, kernels, out + t * width, beside + t * width);
    // The router's input, in the MLP's rows.
    kernels.rms_norm(residual + t * width, weights.router_scale.data(), 0.0f, spec.norm_eps, width, out + t * width);
    encode_row(kernels, routed, t, out + t * width, context.encoded.data());
    norm_row(spec, weights.experts_norm, kernels, residual + t * width, normed + t * width);
  });
  project(context, out, routed,
          {{at.of(LinearKind::router), weights.router, weights.router_bias, context.router.as<float>()}});
  guess_experts(spec, at.layer, routed, context);
  experts_block(spec, layer.experts, at, weights, tokens, context);
  for_rows(context, tokens, 2 * width, [&](int64_t t) {
    float* row = out + t * width;
    norm_row(spec, weights.experts_inner_norm, kernels, row, row);
    kernels.add(beside + t * width, row, width);
  });
}

}  // namespace millrace
