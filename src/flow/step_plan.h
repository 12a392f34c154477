// StepPlan: the scheduler's whole decision for one step. A plan is a value that can be compared, printed and replayed.
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
  bool sample = false;  // the chunk contains the stream's last token, and the step samples the next token
  int64_t drafted = 0;  // number of drafted tokens in `count`; they follow the stream's last token

  int64_t own() const { return count - drafted; }               // tokens that are not drafted
  int64_t outputs() const { return sample ? 1 + drafted : 0; }  // number of rows of logits
  bool operator==(const PlannedChunk&) const = default;
};

// A stream that releases its blocks. With `swap`, its keys and values are moved to a tier; else they are recomputed.
struct PlannedPreemption {
  RequestId request = 0;
  bool swap = false;

  bool operator==(const PlannedPreemption&) const = default;
};

struct StepPlan {
  std::vector<PlannedPreemption> preempted;             // preempted before the admissions
  std::vector<RequestId> admitted;                      // streams from the queue, in order of admission
  std::vector<PlannedPreemption> preempted_for_blocks;  // preempted after the admissions, to free blocks for chunks
  std::vector<PlannedChunk> chunks;                     // in batch order

  int64_t tokens() const;
  bool empty() const { return preempted.empty() && admitted.empty() && preempted_for_blocks.empty() && chunks.empty(); }
  void clear();
  // Returns for example "preempt 4 5~; admit 3; squeeze 6; 1:[57+1]* 2:[9+5]*4 3:[0+64]". "squeeze" lists
  // preempted_for_blocks, and ~ marks a swap. 2:[9+5] is the chunk of stream 2 with tokens 9 to 13; * marks a chunk
  // with `sample`, and *4 one whose last 4 tokens are drafted.
  std::string to_string() const;
  // Parses the text that to_string() returns. Errors: user.
  static Result<StepPlan> parse(std::string_view text);
  bool operator==(const StepPlan&) const = default;
};

}  // namespace millrace
