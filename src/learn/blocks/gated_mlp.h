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

  // Computes out [kLabChunk, width], the output for the chunk's rows, whose inputs are in `rows`.
  void forward(LabWorkspace<Factor>& work, LabMlpRows<Factor>& rows, LabChunk chunk, float* out) const;

  // Computes d_in [kLabChunk, width], the gradient of the input, from d_out [kLabChunk, width], that of the output.
  // Stores the factors of the gradients of down() and gate_up() as those of chunk `place` in a slice.
  void backward(LabWorkspace<Factor>& work, const LabMlpRows<Factor>& rows, LabChunk chunk, LabChunk place,
                const float* d_out, float* d_in, LabFactors<Factor>& down_factors,
                LabFactors<Factor>& gate_up_factors) const;

 private:
  HiddenActivation activation_;
  LabLinear<Factor> gate_up_, down_;  // gate_up_: the rows of gate, then those of up
};

}  // namespace millrace
