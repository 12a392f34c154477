// LabExamples: a source of training examples. Example i is a function of the source, i and the longest prompt, so a run
// continues exactly. Thread-safety: none (encoders cache words).
#pragma once

#include <cstdint>
#include <vector>

#include "learn/lab_pass.h"

namespace millrace {

struct LabExample {
  std::vector<TokenId> ids;
  std::vector<float> weights;  // weight of the loss at each token, as a target
  int64_t answer = 0;          // where the last answer begins
};

void append_example(const LabExample& example, LabBatch& batch);

class LabExamples {
 public:
  virtual ~LabExamples() = default;

  // `longest` is in characters. Empty if the example does not fit the context.
  virtual LabExample example(uint64_t index, int64_t longest) = 0;
  // Appends examples from `next` on until the batch has `tokens` tokens; returns the number of the next example.
  uint64_t fill(uint64_t next, int64_t longest, int64_t tokens, LabBatch& batch);
};

}  // namespace millrace
