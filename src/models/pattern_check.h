// Says which models and KV pools an attention pattern, or a KV format with residuals, can run on.
#pragma once

#include "kv/pool.h"
#include "models/arch_spec.h"
#include "models/forward_sizes.h"

namespace millrace {

// Errors: user, unsupported. Without a pattern there is none.
Result<void> check_pattern(const ArchSpec& spec, const KvPool& kv, const ForwardLimits& limits);
// Errors: unsupported. Without residuals there is no error.
Result<void> check_residuals(const ArchSpec& spec, const KvPool& kv, const ForwardLimits& limits);

}  // namespace millrace
