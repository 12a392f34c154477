// NeuronPredictor: which neurons of an MLP will be active for its input x, by a low-rank product b (a x) and a
// threshold for each neuron (Alizadeh et al., 2023, "LLM in a flash", section 3.1; Song et al., 2023, "PowerInfer").
// The products are linear()'s, so that a token's prediction does not depend on its batch or on threads. Const and
// thread-safe: the caller has the working memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "tensor/weight.h"

namespace millrace {

// Working memory of predictions; grows to the largest batch.
struct PredictorRows {
  std::vector<float> low;     // [tokens][rank]
  std::vector<float> scores;  // [tokens][hidden]
  AlignedBuffer rounded;
};

class NeuronPredictor {
 public:
  // `a`: f16 [rank][width], `b`: f16 [hidden][rank]. They and `thresholds` [hidden] must outlive the predictor. Errors:
  // resource.
  static Result<NeuronPredictor> create(const uint8_t* a, const uint8_t* b, std::span<const float> thresholds,
                                        int64_t width, int64_t rank, const KernelTable& table, ThreadPool& pool);

  int64_t bytes() const { return a_.packed.bytes() + b_.packed.bytes(); }
  // Computes rows.scores for x [tokens][width]. Errors: resource.
  Result<void> score(const float* x, int64_t tokens, const KernelTable& table, ThreadPool& pool,
                     PredictorRows& rows) const;
  bool active(const PredictorRows& rows, int64_t token, int64_t neuron) const {
    return rows.scores[static_cast<size_t>(token * b_.rows + neuron)] > thresholds_[static_cast<size_t>(neuron)];
  }

 private:
  Weight a_, b_;
  std::span<const float> thresholds_;
};

}  // namespace millrace
