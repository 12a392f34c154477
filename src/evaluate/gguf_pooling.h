// The pooling of a folder as GGUF files state it, for conversions.
#pragma once

#include <cstdint>

#include "loader/model_files.h"

namespace millrace {

// Returns the value of GGUF's ARCH.pooling_type for these files; 4 for a class with a ranking head. Errors: as
// model_pooling().
Result<int64_t> gguf_pooling_type(const ModelFiles& files);

}  // namespace millrace
