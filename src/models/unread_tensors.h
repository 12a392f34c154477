// The tensors of a model's files that are of parts which this engine does not run: vision, and layers that predict
// further tokens, which only the drafter mtp reads.
#pragma once

#include <string>

#include "loader/model_files.h"

namespace millrace {

// One line that counts them, for a model with `layers` layers; "" if there are none.
std::string unread_tensors(const ModelFiles& files, int64_t layers);

}  // namespace millrace
