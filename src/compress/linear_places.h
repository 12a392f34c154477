// Which matrices of the model a stored tensor holds, by its GGUF name. Pure functions.
#pragma once

#include <optional>
#include <string_view>

#include "models/linear_id.h"

namespace millrace {

struct LinearPlace {
  LinearId id;           // its kind is that of the rows it reads: q for K, V and fused QKV, up for gate
  bool stacked = false;  // one matrix per expert, the first dimension; id.expert is 0
};

// Empty: a vector, a router, a table, or a name that is not known. `tied`: the embedding is also the head.
std::optional<LinearPlace> linear_place(std::string_view tensor, bool tied);

}  // namespace millrace
