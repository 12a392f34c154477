// Which models token evictors can run on.
#pragma once

#include "kv/token_evictor.h"
#include "models/arch_spec.h"

namespace millrace {

// Streams of at most `context` tokens. Errors: unsupported.
Result<void> check_token_evictor(const EvictionRule& rule, const ArchSpec& spec, int64_t context);

}  // namespace millrace
