#include "learn/lab_examples.h"

namespace millrace {

void append_example(const LabExample& example, LabBatch& batch) {
  batch.starts.push_back(batch.tokens());
  for (size_t i = 0; i + 1 < example.ids.size(); ++i) {
    batch.ids.push_back(example.ids[i]);
    batch.targets.push_back(example.ids[i + 1]);
    batch.weights.push_back(example.weights[i + 1]);
  }
}

uint64_t LabExamples::fill(uint64_t next, int64_t longest, int64_t tokens, LabBatch& batch) {
  while (batch.tokens() < tokens) {
    const LabExample one = example(next++, longest);
    if (one.ids.size() > 1) append_example(one, batch);
  }
  return next;
}

}  // namespace millrace
