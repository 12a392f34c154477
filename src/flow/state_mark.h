// StateMark: a request for a copy of a stream's recurrent state as it is behind one of the tokens of a step.
#pragma once

#include <cstdint>

namespace millrace {

struct StateMark {
  int64_t row = 0;   // index of the token among those that the stream runs in the step
  int32_t slot = 0;  // slot of the StatePool that receives the copy; not that of the stream's own state

  bool operator==(const StateMark&) const = default;
};

}  // namespace millrace
