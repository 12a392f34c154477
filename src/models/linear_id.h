// LinearId: the name of one matrix of a model, for everything that observes or changes single matrices.
#pragma once

#include <compare>
#include <cstdint>

namespace millrace {

enum class LinearKind : uint8_t {
  q,
  k,
  v,
  output,
  gate,
  up,
  down,
  router,
  shared_gate,
  head,
  ssm_in,  // Mamba: x and z; step sizes, B and C; step sizes in full; the output
  ssm_x,
  ssm_dt,
  ssm_out,
  ssm_gate,  // gated delta net: to z; to the update rates; to the step sizes
  ssm_beta,
  ssm_alpha,
  q_a,  // latent attention: to the queries' latent, from it to the heads' queries; to keys' latent and rotated key
  q_b,
  kv_a,
  attention_shortcut,  // applied to the residual stream past a block (SliceGPT)
  mlp_shortcut,
  layer_inputs,  // embeddings to the layers' own inputs (of no layer)
  input_gate,    // a layer's own input: its gate; back to the residual stream
  input_projection,
  laurel_left,
  laurel_right,
  stream_in,  // to a further residual stream, which is in LinearId::expert; from it (both of no layer)
  stream_out,
};

struct LinearId {
  static constexpr int32_t kNoExpert = -1;  // in the dense MLP, or outside an MLP
  static constexpr int32_t kShared = -2;    // the shared expert's MLP

  int32_t layer = -1;  // -1: of no layer (head)
  LinearKind kind = LinearKind::head;
  int32_t expert = kNoExpert;

  // Another matrix of the same layer and MLP.
  constexpr LinearId of(LinearKind other) const { return {layer, other, expert}; }
  auto operator<=>(const LinearId&) const = default;
};

}  // namespace millrace
