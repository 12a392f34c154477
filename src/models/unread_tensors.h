// Tensors that the engine does not run: vision and audio parts, and layers for multi-token prediction (read only by the
// drafter mtp).
#pragma once

#include <string>

#include "loader/model_files.h"

namespace millrace {

// One line that counts them, for a model with `layers` layers; "" if there are none.
std::string unread_tensors(const ModelFiles& files, int64_t layers);

}  // namespace millrace
