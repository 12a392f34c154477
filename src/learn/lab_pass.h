// LabPass: the forward and backward pass over a LabModel, on a CPU without any library. It composes the blocks of
// learn/blocks/ as the model's spec lists its layers. A batch is documents one after another, each with its own
// positions; none attends to another. Products take bfloat16 factors and sum in F32, or take F32 factors; weights and
// residual stream are F32. The result does not depend on the number of threads. Thread-safety: one caller.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/training.h"
#include "learn/lab_model.h"
#include "millrace/token.h"

namespace millrace {

struct LabBatch {
  std::vector<TokenId> ids;
  std::vector<TokenId> targets;  // the next token of each
  std::vector<float> weights;    // weights of the loss; 0: not computed
  std::vector<int64_t> starts;   // starts of the documents
  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

struct LabLoss {
  double loss = 0, weight = 0;     // sums
  std::vector<int64_t> rows;       // positions with a weight
  std::vector<float> losses;       // loss of each token, without the weight
  std::vector<int64_t> predicted;  // the most probable token
};

class LabPass {
 public:
  // `model` and `pool` outlive the pass.
  LabPass(LabModel& model, ThreadPool& pool, const TrainingKernels& kernels);
  LabPass(LabModel& model, ThreadPool& pool, const ExactTrainingKernels& kernels);
  ~LabPass();

  // With `backward`, fills the model's gradient: of the weighted mean of the losses.
  LabLoss run(const LabBatch& batch, bool backward);

  // Logits [rows, vocab] of the batch's rows with a weight; for tests.
  std::vector<float> logits(const LabBatch& batch);

 private:
  class Impl;  // has factors of either kind
  template <typename Factor>
  class Typed;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
