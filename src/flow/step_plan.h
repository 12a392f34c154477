// StepPlan: the scheduler's whole decision for one step, as a value that can be compared, printed and replayed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "millrace/events.h"

namespace millrace {

struct PlannedChunk {
  RequestId request = 0;
  int64_t first = 0;    // index of the chunk's first token in the stream
  int64_t count = 0;    // tokens to run
  bool sample = false;  // the chunk has the stream's last token: sample the next one
  int64_t drafted = 0;  // number of drafted tokens in `count`; they follow the stream's last token

  int64_t own() const { return count - drafted; }               // tokens that the stream has
  int64_t outputs() const { return sample ? 1 + drafted : 0; }  // rows of logits
  bool operator==(const PlannedChunk&) const = default;
};

// A stream that releases its blocks. With `swap` its keys and values go to a tier; else they are computed again.
struct PlannedPreemption {
  RequestId request = 0;
  bool swap = false;

  bool operator==(const PlannedPreemption&) const = default;
};

struct StepPlan {
  std::vector<PlannedPreemption> preempted;             // before the admissions
  std::vector<RequestId> admitted;                      // from the queue, in order
  std::vector<PlannedPreemption> preempted_for_blocks;  // after the admissions, so that the chunks have their blocks
  std::vector<PlannedChunk> chunks;                     // in batch order

  int64_t tokens() const;
  bool empty() const { return preempted.empty() && admitted.empty() && preempted_for_blocks.empty() && chunks.empty(); }
  void clear();
  // "preempt 4 5~; admit 3; squeeze 6; 1:[57+1]* 2:[9+5]*4 3:[0+64]"; * marks a sampled chunk, *4 one whose last 4
  // tokens are drafted, ~ a swap.
  std::string to_string() const;
  // The inverse. Errors: user.
  static Result<StepPlan> parse(std::string_view text);
  bool operator==(const StepPlan&) const = default;
};

}  // namespace millrace
