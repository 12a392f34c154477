// Numbers of slots for recurrent states that an engine has in addition to those of its streams.
#pragma once

#include "kv/pool.h"
#include "millrace/options.h"

namespace millrace {

// Returns the slots that options.state_cache_bytes pays for, or the default for `streams` streams under a memory budget
// of `budget` bytes (0: none). 0: the model has no recurrent layers, or the engine no prefix cache. Errors: user (not
// enough bytes for one copy).
Result<int64_t> planned_state_copies(const EngineOptions& options, const KvLayout& layout, int64_t streams,
                                     int64_t budget);

// Returns the slots for the states behind drafted tokens, for drafts of at most `longest` tokens. Where the lengths of
// drafts are chosen (options.draft_length), long drafts in many streams do not pay, and a state takes much memory.
int64_t planned_draft_states(const EngineOptions& options, int64_t longest);

}  // namespace millrace
