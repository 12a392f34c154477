// A stream whose chunks a test runs through an executor, without an engine.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "run/executors/executor.h"

namespace millrace::testing {

struct SteppedStream {
  Sequence sequence;
  ExecutorStream own;
  ContextPlan context;
  std::vector<float> importance;  // the largest share that each block has seen

  StreamRef ref() { return {sequence, own}; }
};

using SteppedChunks = std::vector<std::pair<SteppedStream*, PlannedChunk>>;

inline void run_chunks(Executor& executor, const SteppedChunks& chunks) {
  StepInput input;
  for (const auto& [stream, chunk] : chunks) add_chunk({stream->ref(), stream->context}, chunk, input);
  StepOutput output;
  executor.forward(input, output);
  size_t next = 0;
  for (const StepMass& mass : output.masses) {
    auto& importance = chunks[static_cast<size_t>(mass.chunk)].first->importance;
    importance.resize(std::max(importance.size(), static_cast<size_t>(mass.blocks)));
    for (size_t b = 0; b < static_cast<size_t>(mass.blocks); ++b)
      importance[b] = std::max(importance[b], output.shares[next++]);
  }
}

}  // namespace millrace::testing
