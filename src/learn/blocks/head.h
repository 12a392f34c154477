// LabHead: the embedding of tokens, and the tied head: a norm, logits over the vocabulary, and the cross-entropy loss.
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

  // Sets x [rows, width] to the embeddings of the batch's tokens; additional rows receive the embedding of token 0.
  void embed(const LabWorkspace<Factor>& work, const LabBatch& batch, int64_t rows, float* x) const;
  // Adds d_x [tokens, width] to the gradient of the embedding.
  void embed_backward(LabWorkspace<Factor>& work, const LabBatch& batch, const float* d_x) const;

  // Returns the loss of the batch's rows with a weight. `logits`: if not null, receives the logits of these rows,
  // [rows, vocabulary].
  LabLoss forward(LabWorkspace<Factor>& work, const LabBatch& batch, const float* x, std::vector<float>* logits);
  // Variant of forward() that also sets d_x [rows, width] to the gradient of x and adds the gradients of the weights.
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
  int64_t rows_ = 0;  // number of rows with a weight, rounded up to whole chunks
  std::vector<Factor> in_, d_logits_;
};

}  // namespace millrace
