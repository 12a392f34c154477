// The factories of the token evictors, one file each in this folder; builtin.cc lists them.
#pragma once

#include "kv/token_evictor.h"

namespace millrace {

Result<std::unique_ptr<const TokenEvictor>> make_streamingllm(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_h2o(const OptionValues& options);

}  // namespace millrace
