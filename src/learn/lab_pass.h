// LabPass: the forward and backward pass over a LabModel on the CPU, without a library. It composes the blocks of
// learn/blocks/ according to the layers in the model's spec. A batch consists of documents one after another, each with
// its own positions; tokens attend only within their document. The factors of products are bfloat16 or F32; sums,
// weights and the residual stream are F32. The result does not depend on the number of threads. Not thread-safe.
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
  std::vector<TokenId> targets;  // the next token after each id
  std::vector<float> weights;    // weight of the loss at each target; 0: the loss is not computed
  std::vector<int64_t> starts;   // index of the first token of each document
  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

struct LabLoss {
  double loss = 0, weight = 0;     // sums over the batch: weighted losses, and weights
  std::vector<int64_t> rows;       // indices of the tokens with a weight
  std::vector<float> losses;       // for each entry of `rows`: the loss, without its weight
  std::vector<int64_t> predicted;  // for each entry of `rows`: the most probable token
};

class LabPass {
 public:
  // `model` and `pool` must outlive the pass.
  LabPass(LabModel& model, ThreadPool& pool, const TrainingKernels& kernels);
  LabPass(LabModel& model, ThreadPool& pool, const ExactTrainingKernels& kernels);
  ~LabPass();

  // Computes the losses. `backward`: true: also sets the model's gradient to that of the weighted mean loss.
  LabLoss run(const LabBatch& batch, bool backward);

  // Returns the logits [rows, vocab] of the batch's tokens with a weight; for tests.
  std::vector<float> logits(const LabBatch& batch);

 private:
  class Impl;  // holds a Typed<Factor>, for either type of factors
  template <typename Factor>
  class Typed;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
