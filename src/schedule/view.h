// ScheduleView: everything that a policy and the planner see of the engine, as plain data.
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
  int64_t context = 0;           // tokens of the longest stream
  int64_t most_held = 0;         // every layer has a window: tokens whose blocks a stream holds at once; 0: all
  int64_t tables = 1;            // tables of a stream; the blocks of all tables count alike (KvState::by_layer)
  bool per_head_tables = false;  // each of them is of one KV head
  bool whole_prompts = false;    // no prompt is cut into chunks

  int64_t held(int64_t tokens) const { return most_held > 0 && most_held < tokens ? most_held : tokens; }
  int64_t blocks_for(int64_t tokens) const { return (tokens + block_tokens - 1) / block_tokens; }
  // Tokens of the longest stream that may keep all its tokens.
  int64_t longest_kept() const {
    return tables * blocks_for(held(context)) <= total_blocks ? context : total_blocks / tables * block_tokens;
  }
  int64_t residents() const { return resident_streams > max_streams ? resident_streams : max_streams; }
};

struct ScheduleView {
  std::span<const Sequence* const> waiting;  // new or preempted, in order of arrival
  std::span<const Sequence* const> running;  // hold blocks; in order of admission
  int64_t now_ns = 0;
  int64_t free_blocks = 0;       // free, or evictable from the prefix index
  int64_t leaving_blocks = 0;    // blocks of streams that are being moved to a tier
  int64_t swap_tokens_free = 0;  // free space in the tier
  PlannerLimits limits;
  const CostModel* cost = nullptr;  // never null in the engine
};

}  // namespace millrace
