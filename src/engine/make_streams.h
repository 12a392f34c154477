// The streams of a new request: one, one for each answer, or one for each beam of a search.
#pragma once

#include <vector>

#include "engine/loop_context.h"
#include "engine/prefix_cache.h"
#include "engine/stream_lists.h"

namespace millrace {

// All streams of the request that go into the queue, or none. The request was checked. `submitted_ns`: since when it
// waits, by the loop's clock; 0: since now. Errors: those of TokenChooser::begin().
Result<std::vector<StreamPtr>> make_streams(LoopContext& loop, PrefixCache& cache, RequestId id, Request request,
                                            int64_t submitted_ns);

}  // namespace millrace
