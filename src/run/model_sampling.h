// The sampling options that a model's own files recommend: generation_config.json, general.sampling.* of GGUF.
#pragma once

#include "loader/model_files.h"
#include "millrace/request.h"

namespace millrace {

// Returns the defaults, with the values that the files state.
SamplingOptions model_sampling(const ModelFiles& files);

}  // namespace millrace
