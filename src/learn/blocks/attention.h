// LabAttention: causal attention with rotary positions and grouped queries, within each document of a batch. (Su et
// al., 2021, "RoFormer"; Ainslie et al., 2023, "GQA".)
//
// The forward pass calls project() for every chunk, attend() once, and output() for every chunk. The backward pass
// calls output_backward() for every chunk, with out().add_gradient() after each slice; attend_backward() once; and
// project_backward() for every chunk, with qkv().add_gradient() after each slice.
#pragma once

#include "learn/blocks/linear.h"

namespace millrace {

// Cosines and sines of the rotation angles, [positions, head_dim / 2].
struct LabRotations {
  std::vector<float> cosines, sines;
};
LabRotations make_rotations(const RopeSpec& rope, int64_t positions);

// The documents of a batch, and the position of each row in its document. Rows after the last document have position 0.
struct LabDocuments {
  struct Span {
    int64_t start, length;
  };
  std::vector<Span> spans;
  std::vector<int32_t> positions;
  int64_t tokens = 0;
};

template <typename Factor>
class LabAttention {
 public:
  // `rotations` must outlive the block.
  LabAttention(const LayerSpec& layer, const LabLayerTensors& tensors, const LabRotations& rotations);

  std::vector<LabLinear<Factor>*> linears() { return {&qkv_, &out_}; }
  // Allocates buffers for `rows` rows, a multiple of kLabChunk. Rows after the last document have no attention.
  void reserve(LabWorkspace<Factor>& work, int64_t rows, const LabDocuments& documents);
  Factor* normed(int64_t row) { return normed_.data() + row * qkv_.inputs(); }  // the block's input

  void project(LabWorkspace<Factor>& work, LabChunk chunk, const LabDocuments& documents);
  void attend(LabWorkspace<Factor>& work, const LabDocuments& documents);
  // Adds the block's output to x [kLabChunk, width].
  void output(LabWorkspace<Factor>& work, LabChunk chunk, float* x);

  // `d_x`: [kLabChunk, width], gradient of the output. `factors`: receives the factors of out()'s gradient.
  void output_backward(LabWorkspace<Factor>& work, LabChunk chunk, const float* d_x, LabFactors<Factor>& factors);
  void attend_backward(LabWorkspace<Factor>& work, const LabDocuments& documents);
  // `d_normed`: [kLabChunk, width], receives the gradient of the input. `factors`: receives the factors of qkv()'s
  // gradient.
  void project_backward(LabWorkspace<Factor>& work, LabChunk chunk, float* d_normed, LabFactors<Factor>& factors);
  const LabLinear<Factor>& out() const { return out_; }
  const LabLinear<Factor>& qkv() const { return qkv_; }

 private:
  TrainingAttentionOf<Factor> head_group(LabWorkspace<Factor>& work, LabDocuments::Span document, int64_t kv,
                                         int worker);

  LayerSpec layer_;
  const LabRotations& rotations_;
  LabLinear<Factor> qkv_, out_;
  std::vector<Factor> normed_, qkv_rows_, mixed_;
  std::vector<float> log_sums_;
};

}  // namespace millrace
