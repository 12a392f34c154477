// The planner: queue and running streams in, StepPlan out. Pure functions over plain data, so that a plan can be
// compared, printed and replayed, and the same code plans for the real engine and for a simulated one.
//
// First come, first served; decode and prefill mix under one token budget (Sarathi, Agrawal et al., 2023): every
// stream that is decoding gets its token first, what is left of the budget goes to prompts in order of arrival.
#pragma once

#include <cstdint>
#include <span>

#include "flow/sequence.h"
#include "flow/step_plan.h"

namespace millrace {

struct PlannerLimits {
  int64_t batch_tokens = 512;
  int64_t outputs = 64;       // sampled rows in one step
  int64_t max_streams = 8;
  int64_t total_blocks = 0;
  int64_t block_tokens = 16;
};

// Blocks that a stream may come to need in all; promised at admission, so that no admitted stream ever lacks one.
int64_t blocks_needed(const Sequence& sequence, const PlannerLimits& limits);

// How many of `waiting`, from the front, may start now.
int64_t plan_admissions(std::span<const Sequence* const> waiting, std::span<const Sequence* const> running,
                        const PlannerLimits& limits);

// Chunks of one step over the running streams, in order of arrival; the first form reuses the memory of `chunks`.
void plan_chunks(std::span<const Sequence* const> running, const PlannerLimits& limits, std::vector<PlannedChunk>& chunks);
StepPlan plan_step(std::span<const Sequence* const> running, const PlannerLimits& limits);

}  // namespace millrace
