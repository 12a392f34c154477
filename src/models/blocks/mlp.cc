#include "models/blocks/blocks.h"

namespace millrace {

void activate(const ArchSpec& spec, const KernelTable& kernels, float* gate, float* up, int64_t n) {
  if (spec.gated) {
    switch (spec.activation) {
      case HiddenActivation::silu: kernels.silu_mul(gate, up, gate, n); return;
      case HiddenActivation::gelu_tanh: kernels.gelu_tanh_mul(gate, up, gate, n); return;
      case HiddenActivation::gelu_erf: kernels.gelu_erf_mul(gate, up, gate, n); return;
      case HiddenActivation::relu:
        kernels.relu(gate, n);
        for (int64_t i = 0; i < n; ++i) gate[i] *= up[i];
        return;
    }
  }
  switch (spec.activation) {
    case HiddenActivation::silu:
      for (int64_t i = 0; i < n; ++i) gate[i] = 1.0f;
      kernels.silu_mul(up, gate, up, n);
      return;
    case HiddenActivation::gelu_tanh: kernels.gelu_tanh(up, n); return;
    case HiddenActivation::gelu_erf: kernels.gelu_erf(up, n); return;
    case HiddenActivation::relu: kernels.relu(up, n); return;
  }
}

void mlp_block(const ArchSpec& spec, const MlpWeights& weights, int64_t hidden, int64_t tokens, ForwardContext& context) {
  float* gate = context.gate.as<float>();
  float* up = context.up.as<float>();
  auto encode = [&](const Weight& weight, const float* rows, int64_t cols, uint8_t* scratch) {
    return encode_activations(context.kernels(), context.pool(), weight.format->activation, rows, cols, tokens, cols, scratch);
  };
  ActivationRows x = encode(weights.up, context.normed.as<float>(), spec.width, context.encoded.data());
  linear_bias(context, weights.up, weights.up_bias, x, up, hidden);
  if (spec.gated) {
    if (weights.gate.format->activation != weights.up.format->activation)
      x = encode(weights.gate, context.normed.as<float>(), spec.width, context.encoded.data());
    linear_bias(context, weights.gate, weights.gate_bias, x, gate, hidden);
  }
  context.pool().parallel_for(tokens, [&](int64_t t, int) {
    activate(spec, context.kernels(), gate + t * hidden, up + t * hidden, hidden);
  });
  ActivationRows inner = encode(weights.down, spec.gated ? gate : up, hidden, context.encoded_hidden.data());
  linear_bias(context, weights.down, weights.down_bias, inner, context.block_out.as<float>(), spec.width);
}

}  // namespace millrace
