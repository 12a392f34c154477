// Limits of the work that streams do within a step to find their next tokens' masks, in units of 1 to 10 nanoseconds
// (ParseTable): `own` for each stream, and `step` beyond that for all streams together. A stream that needs more sits
// out steps while another thread computes its mask (engine/mask_worker.h). Its answer does not depend on these numbers.
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
