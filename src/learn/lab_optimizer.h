// LabOptimizer: Muon (momentum, orthogonalized by five Newton-Schulz steps) for the matrices of the blocks, and AdamW
// for the embedding and the norms. (Jordan et al., 2024, "Muon: An optimizer for hidden layers in neural networks";
// Loshchilov and Hutter, 2019, "Decoupled Weight Decay Regularization".) The update does not depend on the number of
// threads. Thread-safety: none.
#pragma once

#include <vector>

#include "learn/lab_model.h"
#include "learn/lab_pass.h"

namespace millrace {

struct LabRates {
  double muon = 0.02, adam = 3e-3;
  double decay = 0.05;  // weight decay of matrices
  double clip = 1.0;    // maximum norm of the gradient
};

class LabOptimizer {
 public:
  LabOptimizer(LabModel& model, ThreadPool& pool, const TrainingKernels& kernels, const LabRates& rates);

  // Performs one update with the rates times `schedule`. Returns the gradient's norm.
  double step(double schedule);

  int64_t steps = 0;
  std::vector<float> first, second;  // moments of the gradient; matrices updated by Muon have no second moments

 private:
  struct Part {  // one matrix of a tensor, or a whole vector
    int64_t offset, rows, columns;
    bool muon;
  };
  void adam(const Part& part, double rate, float scale);
  void muon(const Part& part, double rate, float scale, int worker);
  void orthogonalize(float* x, int64_t rows, int64_t columns, int worker);

  LabModel& model_;
  ThreadPool& pool_;
  const TrainingKernels& kernels_;
  LabRates rates_;
  std::vector<Part> parts_;
  struct Scratch {
    std::vector<float> x, update, square, squared;
    std::vector<Bf16> rounded, small;
    std::vector<uint32_t> panels, small_panels;
  };
  std::vector<Scratch> scratch_;
};

}  // namespace millrace
