// The factories of the built-in prompt compressors.
#pragma once

#include "prompt/compressor.h"

namespace millrace {

Result<std::unique_ptr<PromptCompressor>> make_selective_context(const OptionValues& options);

}  // namespace millrace
