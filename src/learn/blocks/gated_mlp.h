// LabGatedMlp: down(act(gate x) * up x), where act is SiLU or ReLU. (Shazeer, 2020, "GLU Variants Improve
// Transformer".)
#pragma once

#include "learn/blocks/linear.h"

namespace millrace {

// Values that the backward pass of a gated MLP needs from the forward pass, by row.
template <typename Factor>
struct LabMlpRows {
  std::vector<Factor> in, gate_up, hidden;
};

template <typename Factor>
class LabGatedMlp {
 public:
  LabGatedMlp(HiddenActivation activation, LabTensor gate_up, LabTensor down);

  std::vector<LabLinear<Factor>*> linears() { return {&gate_up_, &down_}; }
  const LabLinear<Factor>& gate_up() const { return gate_up_; }
  const LabLinear<Factor>& down() const { return down_; }
  void reserve(LabMlpRows<Factor>& rows, int64_t count) const;
  Factor* in(LabMlpRows<Factor>& rows, int64_t row) const { return rows.in.data() + row * gate_up_.inputs(); }

  // out [kLabChunk, width] = the output for the rows of the chunk, whose inputs are in `rows`.
  void forward(LabWorkspace<Factor>& work, LabMlpRows<Factor>& rows, LabChunk chunk, float* out) const;

  // d_in [kLabChunk, width] = gradient of the input; d_out [kLabChunk, width]. Keeps factors of the gradients of down()
  // and gate_up(), as the chunk `place` of a slice.
  void backward(LabWorkspace<Factor>& work, const LabMlpRows<Factor>& rows, LabChunk chunk, LabChunk place,
                const float* d_out, float* d_in, LabFactors<Factor>& down_factors,
                LabFactors<Factor>& gate_up_factors) const;

 private:
  HiddenActivation activation_;
  LabLinear<Factor> gate_up_, down_;  // rows of the gate, then of up
};

}  // namespace millrace
