#include "schedule/planner.h"

#include <algorithm>

namespace millrace {

int64_t blocks_needed(const Sequence& sequence, const PlannerLimits& limits) {
  return (sequence.max_total + limits.block_tokens - 1) / limits.block_tokens;
}

int64_t plan_admissions(std::span<const Sequence* const> waiting, std::span<const Sequence* const> running,
                        const PlannerLimits& limits) {
  int64_t streams = static_cast<int64_t>(running.size());
  int64_t blocks = limits.total_blocks;
  for (const Sequence* sequence : running) blocks -= sequence->reserved_blocks;
  int64_t admitted = 0;
  for (const Sequence* sequence : waiting) {
    const int64_t needed = blocks_needed(*sequence, limits);
    if (streams + 1 > limits.max_streams || needed > blocks) break;  // in order: nobody overtakes
    blocks -= needed;
    ++streams;
    ++admitted;
  }
  return admitted;
}

void plan_chunks(std::span<const Sequence* const> running, const PlannerLimits& limits, std::vector<PlannedChunk>& chunks) {
  chunks.clear();
  int64_t tokens = limits.batch_tokens;
  int64_t outputs = limits.outputs;
  auto take = [&](const Sequence& sequence) {
    PlannedChunk chunk{sequence.id, sequence.computed, std::min(tokens, sequence.size() - sequence.computed), false};
    chunk.sample = chunk.first + chunk.count == sequence.size();
    if (chunk.sample && outputs == 0) {
      chunk.sample = false;
      --chunk.count;  // the last token waits for a step that can sample it
    }
    if (chunk.count <= 0) return;
    tokens -= chunk.count;
    outputs -= chunk.sample;
    chunks.push_back(chunk);
  };
  for (const Sequence* sequence : running)
    if (sequence->decoding()) take(*sequence);
  for (const Sequence* sequence : running)
    if (!sequence->decoding()) take(*sequence);
}

StepPlan plan_step(std::span<const Sequence* const> running, const PlannerLimits& limits) {
  StepPlan plan;
  plan_chunks(running, limits, plan.chunks);
  return plan;
}

}  // namespace millrace
