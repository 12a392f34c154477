// The streams of a new request: one, one for each answer, or one for each beam of a search.
#pragma once

#include <vector>

#include "engine/loop_context.h"
#include "engine/prefix_cache.h"
#include "engine/prepared_request.h"
#include "engine/stream_lists.h"

namespace millrace {

// Returns all streams of the request that go into the queue, or none. `submitted_ns`: since when it
// waits, by the loop's clock; 0: since now. Errors: those of TokenChooser::begin().
Result<std::vector<StreamPtr>> make_streams(LoopContext& loop, PrefixCache& cache, RequestId id,
                                            PreparedRequest prepared, int64_t submitted_ns);

}  // namespace millrace
