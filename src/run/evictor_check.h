// Which models and KV formats token evictors can run on.
#pragma once

#include "kv/pool.h"
#include "kv/token_evictor.h"
#include "models/arch_spec.h"

namespace millrace {

// Streams of at most `context` tokens. Errors: unsupported.
Result<void> check_token_evictor(const EvictionRule& rule, const ArchSpec& spec, int64_t context);

// Errors: unsupported.
Result<void> check_evictor_layout(const KvLayout& layout);

}  // namespace millrace
