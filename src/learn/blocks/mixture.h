// LabExperts: a mixture of gated MLPs, the experts. A router chooses two experts for each token. Their outputs are
// summed with the router's softmax over the two as weights. An auxiliary loss balances the use of the experts. (Fedus
// et al., 2022, "Switch Transformers"; Jiang et al., 2024, "Mixtral of Experts".)
#pragma once

#include "learn/blocks/gated_mlp.h"

namespace millrace {

template <typename Factor>
class LabExperts {
 public:
  LabExperts(HiddenActivation activation, const LayerSpec& layer, const LabLayerTensors& tensors);

  std::vector<LabLinear<Factor>*> linears();
  void reserve(LabWorkspace<Factor>& work, int64_t rows);
  Factor* in(int64_t row) { return in_.data() + row * width_; }  // the block's input

  // Adds the block's output for all rows to x [rows, width]. `rows`: a multiple of kLabChunk.
  void forward(LabWorkspace<Factor>& work, int64_t rows, float* x);

  // `d_x`: [rows, width], gradient of the output. Sets work.d_normed [rows, width] to the gradient of the input,
  // including that of the auxiliary loss. Adds the gradients of all weights.
  void backward(LabWorkspace<Factor>& work, int64_t rows, const float* d_x);

 private:
  void route(LabWorkspace<Factor>& work, int64_t rows);
  void assign_rows();
  int64_t expert_of(int64_t row) const;
  void gather(LabChunk chunk);
  void expert_backward(LabWorkspace<Factor>& work, size_t expert, const float* d_x);
  // Computes for a chunk's rows the gradients of the outputs, in `d_out`, and of the shares.
  void rows_backward(LabChunk chunk, const float* d_x, float* d_out);
  void router_backward(LabWorkspace<Factor>& work, int64_t rows);

  int64_t width_;
  LabTensor router_;
  std::vector<LabGatedMlp<Factor>> mlps_;
  std::vector<Factor> in_;                // [tokens, width]
  std::vector<int64_t> expert_, row_;     // [tokens][2]: the chosen experts, and the token's row in each
  std::vector<float> shares_, d_shares_;  // [tokens][2]
  std::vector<float> all_;                // [tokens][experts], the router's probabilities
  std::vector<int64_t> token_;            // token of each row; -1: none
  std::vector<int64_t> first_;            // first row of each expert, then the number of rows; multiples of kLabChunk
  LabMlpRows<Factor> rows_;
  std::vector<float> out_, d_row_in_;  // [rows, width]
};

}  // namespace millrace
