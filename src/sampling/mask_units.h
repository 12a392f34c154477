// How much work on what its next token may be a stream does within a step, in units of 1 to 10 nanoseconds
// (ParseTable): each stream `own`, and all streams together `step` beyond that. A stream that needs more sits out steps
// while another thread computes its mask (engine/mask_worker.h). Its answer does not depend on these numbers.
#pragma once

#include <cstdint>

namespace millrace {

struct MaskUnits {
  int64_t own = 32'768;
  int64_t step = 500'000;
};

// All engines of the process share these numbers. Tests may change them before they create an engine.
inline MaskUnits& mask_units() {
  static MaskUnits units;
  return units;
}

}  // namespace millrace
