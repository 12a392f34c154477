// StepPlan: the scheduler's whole decision for one step, as a value that can be compared, printed and replayed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/events.h"

namespace millrace {

struct PlannedChunk {
  RequestId request = 0;
  int64_t first = 0;    // index of the chunk's first token in the stream
  int64_t count = 0;    // tokens to run
  bool sample = false;  // the chunk ends at the stream's last token: choose the next one

  bool operator==(const PlannedChunk&) const = default;
};

struct StepPlan {
  std::vector<RequestId> admitted;   // from the queue, in order
  std::vector<PlannedChunk> chunks;  // in batch order

  int64_t tokens() const;
  std::string to_string() const;  // "admit 3; 1:[57+1]* 3:[0+64]"; * marks a sampled chunk
  bool operator==(const StepPlan&) const = default;
};

}  // namespace millrace
