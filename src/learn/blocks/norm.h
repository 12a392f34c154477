// LabNorm: RMSNorm with a learned weight. (Zhang and Sennrich, 2019, "Root Mean Square Layer Normalization".)
#pragma once

#include "learn/blocks/workspace.h"

namespace millrace {

template <typename Factor>
class LabNorm {
 public:
  LabNorm(LabTensor tensor, float epsilon) : tensor_(std::move(tensor)), epsilon_(epsilon) {}

  // Computes out = x / rms(x) * weight for `rows` rows.
  void forward(const LabWorkspace<Factor>& work, const float* x, int64_t rows, Factor* out) const;

  // Adds the gradient of `rows` rows of a chunk to d_x. begin_chunk() is called before the first rows of a chunk.
  // add_gradient() is called after all chunks; it sums the chunks' gradients of the weight in order.
  void begin_chunk(LabWorkspace<Factor>& work, LabChunk chunk) const;
  void backward(LabWorkspace<Factor>& work, LabChunk chunk, const float* x, const float* d_out, int64_t rows,
                float* d_x) const;
  void add_gradient(LabWorkspace<Factor>& work, int64_t chunks) const;

 private:
  LabTensor tensor_;
  float epsilon_;
};

}  // namespace millrace
