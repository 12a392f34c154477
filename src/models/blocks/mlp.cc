#include <algorithm>
#include <cmath>

#include "models/blocks/blocks.h"

namespace millrace {
namespace {

constexpr float kSwigluSlope = 1.702f;

// g sigmoid(a g) is silu(a g) / a.
void clamped_swiglu(const KernelTable& kernels, float limit, float* gate, float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) gate[i] = kSwigluSlope * std::min(gate[i], limit);
  for (int64_t i = 0; i < n; ++i) up[i] = (std::clamp(up[i], -limit, limit) + 1.0f) / kSwigluSlope;
  kernels.silu_mul(gate, up, gate, n);
}

// gate = max(0, gate - mean - deviations * standard deviation), both over the row (activation sparsity).
void cut_gate(float deviations, float* gate, int64_t n) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(gate[i]);
  const double mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i)
    squares += (static_cast<double>(gate[i]) - mean) * (static_cast<double>(gate[i]) - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(n));
  const auto cut = static_cast<float>(mean + static_cast<double>(deviations) * deviation);
  for (int64_t i = 0; i < n; ++i) gate[i] = std::max(0.0f, gate[i] - cut);
}

}  // namespace

void activate(const ArchSpec& spec, const KernelTable& kernels, float* gate, float* up, int64_t n) {
  if (spec.gated) {
    if (spec.gate_scale != 1.0f) kernels.scale(gate, spec.gate_scale, n);
    if (spec.mlp_scale != 1.0f) kernels.scale(up, spec.mlp_scale, n);
    switch (spec.activation) {
      case HiddenActivation::silu: kernels.silu_mul(gate, up, gate, n); return;
      case HiddenActivation::gelu_tanh: kernels.gelu_tanh_mul(gate, up, gate, n); return;
      case HiddenActivation::gelu_erf: kernels.gelu_erf_mul(gate, up, gate, n); return;
      case HiddenActivation::relu:
        kernels.relu(gate, n);
        for (int64_t i = 0; i < n; ++i) gate[i] *= up[i];
        return;
      case HiddenActivation::clamped_swiglu: clamped_swiglu(kernels, spec.activation_limit, gate, up, n); return;
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
    case HiddenActivation::clamped_swiglu: return;  // check_spec() has refused it
  }
}

void mlp_block(const ArchSpec& spec, LinearId at, const MlpWeights& weights, int64_t hidden, const ActivationRows& rows,
               ForwardContext& context, float gate_cut) {
  const KernelTable& kernels = context.kernels();
  float* gate = context.gate.as<float>();
  float* up = context.up.as<float>();
  const float* normed = context.normed.as<float>();
  if (spec.gated) {
    project_alike(context, context.fused().gate_up, normed, rows,
                  {{at.of(LinearKind::up), weights.up, weights.up_bias, up},
                   {at.of(LinearKind::gate), weights.gate, weights.gate_bias, gate}});
  } else {
    project(context, normed, rows, {{at.of(LinearKind::up), weights.up, weights.up_bias, up}});
  }
  float* inner = spec.gated ? gate : up;
  uint8_t* encoded = context.encoded_hidden.data();
  const ActivationRows inner_rows = rows_for(weights.down, rows.tokens, hidden, encoded);
  activate_rows(
      context, rows.tokens, hidden,
      [&](int64_t t) {
        if (gate_cut > 0.0f) cut_gate(gate_cut, gate + t * hidden, hidden);
        activate(spec, kernels, gate + t * hidden, up + t * hidden, hidden);
      },
      [&](int64_t t) { encode_row(kernels, inner_rows, t, inner + t * hidden, encoded); });
  project(context, inner, inner_rows,
          {{at.of(LinearKind::down), weights.down, weights.down_bias, context.block_out.as<float>()}});
}

}  // namespace millrace
