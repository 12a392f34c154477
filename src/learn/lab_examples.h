// LabExamples: a source of training examples. Example i depends only on the source, i and the maximum prompt length, so
// a resumed run continues exactly. Not thread-safe, because encoders cache words.
#pragma once

#include <cstdint>
#include <vector>

#include "learn/lab_pass.h"

namespace millrace {

struct LabExample {
  std::vector<TokenId> ids;
  std::vector<float> weights;  // weight of the loss for each token as a target
  int64_t answer = 0;          // index of the first token of the last answer
};

void append_example(const LabExample& example, LabBatch& batch);

class LabExamples {
 public:
  virtual ~LabExamples() = default;

  // Returns example `index`; an empty one if it does not fit the context. `longest`: maximum prompt length in
  // characters.
  virtual LabExample example(uint64_t index, int64_t longest) = 0;
  // Appends examples from number `next` on until the batch has `tokens` tokens. Returns the number of the next example.
  uint64_t fill(uint64_t next, int64_t longest, int64_t tokens, LabBatch& batch);
};

}  // namespace millrace
