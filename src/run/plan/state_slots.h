// How many copies of recurrent states the prefix cache of an engine may hold.
#pragma once

#include "kv/pool.h"
#include "millrace/options.h"

namespace millrace {

// Returns the slots that options.state_cache_bytes pays for, or the default for `streams` streams under a memory budget
// of `budget` bytes (0: none). 0: the model has no recurrent layers, or the engine no prefix cache. Errors: user (not
// enough bytes for one copy).
Result<int64_t> planned_state_copies(const EngineOptions& options, const KvLayout& layout, int64_t streams,
                                     int64_t budget);

}  // namespace millrace
