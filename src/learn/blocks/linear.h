// LabLinear: a product with a weight matrix, its two gradients, and the packed forms of the matrix.
#pragma once

#include "learn/blocks/workspace.h"

namespace millrace {

template <typename Factor>
class LabLinear {
 public:
  explicit LabLinear(LabTensor tensor) : tensor_(std::move(tensor)) {}

  int64_t inputs() const { return tensor_.columns; }
  int64_t outputs() const { return tensor_.rows; }

  // Rounds and packs the weights. Called before each pass; may run at the same time for different matrices.
  void pack(const LabWorkspace<Factor>& work);

  // Computes out [kLabChunk, outputs] = in [kLabChunk, inputs] times the transposed matrix.
  void forward(const LabWorkspace<Factor>& work, const Factor* in, float* out) const;
  // Computes columns [column, column + kLabPanel) of this product: out [kLabChunk, kLabPanel].
  void forward_panel(const LabWorkspace<Factor>& work, const Factor* in, int64_t column, float* out) const;
  // Computes d_in [kLabChunk, inputs] = d_out [kLabChunk, outputs] times the matrix.
  void backward(const LabWorkspace<Factor>& work, const Factor* d_out, float* d_in) const;

  // Add the matrix's gradient over a slice. Called in this order: reserve(), keep() for each chunk of the slice,
  // add_gradient().
  void reserve(LabFactors<Factor>& factors) const;
  void keep(const LabWorkspace<Factor>& work, const Factor* d_out, const Factor* in, LabChunk chunk,
            LabFactors<Factor>& factors) const;
  void add_gradient(LabWorkspace<Factor>& work, const LabFactors<Factor>& factors, int64_t chunks) const;

 private:
  using Pair = TrainingPair<Factor>;
  void multiply(const LabWorkspace<Factor>& work, const Factor* rows, int64_t inner, const Pair* panels,
                int64_t columns, float* out) const;

  LabTensor tensor_;
  std::vector<Factor> rounded_;
  std::vector<Pair> forward_, backward_;  // weights as panels of outputs (forward) and of inputs (backward)
};

}  // namespace millrace
