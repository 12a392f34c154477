// Chooses a format for each tensor so that the sum of costs is least within a number of bytes: an integer program with
// one choice for each tensor, solved exactly. Pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "compress/pass.h"

namespace millrace {

// An index into the candidates of each tensor. Errors: user (the smallest candidates take more bytes), resource (too
// many different sums of bytes).
Result<std::vector<size_t>> least_cost_formats(const std::vector<FormatCosts>& tensors, int64_t bytes);

}  // namespace millrace
