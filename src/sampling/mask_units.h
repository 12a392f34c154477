// Limits of the work within a step that finds the streams' next token masks, in units of 1 to 10 nanoseconds
// (ParseTable). A stream whose mask needs more work skips steps while another thread computes the mask
// (engine/mask_worker.h). Answers do not depend on these limits.
#pragma once

#include <cstdint>

namespace millrace {

struct MaskUnits {
  int64_t own = 32'768;    // units for each stream
  int64_t step = 500'000;  // further units for all streams together
};

// All engines of the process share these numbers. Tests may change them before they create an engine.
inline MaskUnits& mask_units() {
  static MaskUnits units;
  return units;
}

}  // namespace millrace
