// Finds the model's matrices that a stored tensor holds, by its GGUF name. Pure functions.
#pragma once

#include <optional>
#include <string_view>

#include "models/linear_id.h"

namespace millrace {

struct LinearPlace {
  // Its kind names the input rows, which several matrices share: q also for K, V and fused QKV, up also for gate.
  LinearId id;
  bool stacked = false;  // true: one matrix for each expert, along the first dimension; id.expert is 0
};

// Returns empty for a vector, a router, a table, or an unknown name. `tied`: true: the embedding is also the head.
std::optional<LinearPlace> linear_place(std::string_view tensor, bool tied);

}  // namespace millrace
