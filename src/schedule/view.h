// ScheduleView: the state of the engine that policies and the planner see, as plain data.
#pragma once

#include <cstdint>
#include <span>

#include "flow/sequence.h"
#include "schedule/cost_model.h"

namespace millrace {

struct PlannerLimits {
  int64_t batch_tokens = 512;
  int64_t outputs = 64;     // rows of logits in one step
  int64_t max_streams = 8;  // chunks in one step
  int64_t total_blocks = 0;
  int64_t block_tokens = 16;
  int64_t resident_streams = 0;  // streams that hold blocks; 0: max_streams
  int64_t context = 0;           // maximum tokens of a stream
  int64_t most_held = 0;         // if every layer has a window: maximum tokens with blocks of a stream; 0: no limit
  int64_t tables = 1;            // block tables of a stream; more than 1: one per layer (KvState::by_layer) or KV head
  bool per_head_tables = false;  // each table belongs to one KV head
  bool whole_prompts = false;    // no prompt is cut into chunks

  int64_t held(int64_t tokens) const { return most_held > 0 && most_held < tokens ? most_held : tokens; }
  int64_t blocks_for(int64_t tokens) const { return (tokens + block_tokens - 1) / block_tokens; }
  // Returns the maximum tokens of a stream that keeps all its keys and values.
  int64_t longest_kept() const {
    return tables * blocks_for(held(context)) <= total_blocks ? context : total_blocks / tables * block_tokens;
  }
  int64_t residents() const { return resident_streams > max_streams ? resident_streams : max_streams; }
};

struct ScheduleView {
  std::span<const Sequence* const> waiting;  // new or preempted streams, in order of arrival
  std::span<const Sequence* const> running;  // streams that hold blocks, in order of admission
  int64_t now_ns = 0;
  int64_t free_blocks = 0;       // blocks that are free, or evictable from the prefix index
  int64_t leaving_blocks = 0;    // blocks of streams that are being moved to a tier
  int64_t swap_tokens_free = 0;  // free space in the tier
  PlannerLimits limits;
  const CostModel* cost = nullptr;  // never null in the engine
};

}  // namespace millrace
