// Chooses a format for each tensor so that the sum of costs is minimal and the sum of bytes is within a limit. This is
// an integer program with one choice for each tensor; it is solved exactly. Pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "compress/pass.h"

namespace millrace {

// Returns for each tensor the index of the chosen candidate. `bytes`: the limit. Errors: user (even the smallest
// candidates exceed the limit), resource (too many different sums of bytes).
Result<std::vector<size_t>> least_cost_formats(const std::vector<FormatCosts>& tensors, int64_t bytes);

}  // namespace millrace
