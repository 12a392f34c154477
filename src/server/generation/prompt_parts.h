// Describes the compression of prompts to their request.
#pragma once

#include <vector>

#include "prompt/pipeline.h"
#include "server/generation/generation_request.h"

namespace millrace {

// Replaces the prompts by the compressed ones, one for each, and appends the changes to params.applied.
void take_compressed(GenerationRequest& params, std::vector<CompressedPrompt> compressed);

}  // namespace millrace
