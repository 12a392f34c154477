// LabHead: the embedding of tokens, and the tied head with its loss: norm, logits over the vocabulary, cross entropy.
// (Press and Wolf, 2017, "Using the Output Embedding to Improve Language Models".)
#pragma once

#include "learn/blocks/linear.h"
#include "learn/blocks/norm.h"
#include "learn/lab_pass.h"

namespace millrace {

template <typename Factor>
class LabHead {
 public:
  explicit LabHead(const LabModel& model);

  std::vector<LabLinear<Factor>*> linears() { return {&linear_}; }

  // x [rows, width] = embeddings of the batch's tokens, then of token 0.
  void embed(const LabWorkspace<Factor>& work, const LabBatch& batch, int64_t rows, float* x) const;
  // Adds d_x [tokens, width] to the gradient of the embedding.
  void embed_backward(LabWorkspace<Factor>& work, const LabBatch& batch, const float* d_x) const;

  // The loss of the batch's rows with a weight. `logits`: if not null, receives [those rows, vocabulary].
  LabLoss forward(LabWorkspace<Factor>& work, const LabBatch& batch, const float* x, std::vector<float>* logits);
  // As forward(); also d_x [rows, width] = the loss's gradient, and adds that of the weights.
  LabLoss backward(LabWorkspace<Factor>& work, const LabBatch& batch, const float* x, int64_t rows, float* d_x);

 private:
  struct Run {  // one call
    const LabBatch& batch;
    const float* x;
    float* d_x;  // null: no gradient
    std::vector<float>* logits;
    LabLoss loss;
  };
  void begin(const LabBatch& batch, Run& run);
  void finish(Run& run) const;
  void chunk_forward(LabWorkspace<Factor>& work, LabChunk chunk, Run& run);
  void chunk_backward(LabWorkspace<Factor>& work, LabChunk chunk, const Run& run);

  LabTensor embedding_;
  LabLinear<Factor> linear_;
  LabNorm<Factor> norm_;
  int64_t rows_ = 0;  // with a weight, filled up to whole chunks
  std::vector<Factor> in_, d_logits_;
};

}  // namespace millrace
