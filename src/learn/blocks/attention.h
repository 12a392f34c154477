// LabAttention: causal attention with rotary positions and grouped queries, within each document of a batch. (Su et
// al., 2021, "RoFormer"; Ainslie et al., 2023, "GQA".)
//
// Forward: project() for every chunk, attend() once, output() for every chunk. Backward, in the opposite order:
// output_backward() in slices, each followed by out().add_gradient(); attend_backward() once; project_backward() in
// slices, each followed by qkv().add_gradient().
#pragma once

#include "learn/blocks/linear.h"

namespace millrace {

// cos and sin of the angles of positions, [positions, head_dim / 2].
struct LabRotations {
  std::vector<float> cosines, sines;
};
LabRotations make_rotations(const RopeSpec& rope, int64_t positions);

// The documents of a batch, and each row's position in its own. Rows after the last document have position 0.
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
  // `rotations` outlives the block.
  LabAttention(const LayerSpec& layer, const LabLayerTensors& tensors, const LabRotations& rotations);

  std::vector<LabLinear<Factor>*> linears() { return {&qkv_, &out_}; }
  // Buffers for `rows` rows, a multiple of kLabChunk. Rows after the documents take no part in attention.
  void reserve(LabWorkspace<Factor>& work, int64_t rows, const LabDocuments& documents);
  Factor* normed(int64_t row) { return normed_.data() + row * qkv_.inputs(); }  // the block's input

  void project(LabWorkspace<Factor>& work, LabChunk chunk, const LabDocuments& documents);
  void attend(LabWorkspace<Factor>& work, const LabDocuments& documents);
  // x [kLabChunk, width] += the block's output.
  void output(LabWorkspace<Factor>& work, LabChunk chunk, float* x);

  // `factors`: of out()'s gradient. d_x [kLabChunk, width].
  void output_backward(LabWorkspace<Factor>& work, LabChunk chunk, const float* d_x, LabFactors<Factor>& factors);
  void attend_backward(LabWorkspace<Factor>& work, const LabDocuments& documents);
  // d_normed [kLabChunk, width] = gradient of the input. `factors`: of qkv()'s gradient.
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
