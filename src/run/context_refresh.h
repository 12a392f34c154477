// What a document context has computed again of a document whose keys have moved (ContextPart::refreshes()): passes of
// their own, between the steps of the engine. Not thread-safe.
#pragma once

#include <span>
#include <vector>

#include "context/document_context.h"
#include "models/model_runner.h"
#include "run/executor_stream.h"

namespace millrace {

// Whether a stream's stale parts, of these indices, must be computed again before its token `next` runs: it sees them,
// or they have as many tokens as a pass may take, `most`. Tokens of a part see no other, so those of several parts can
// share a pass, and with it one reading of the weights.
bool refresh_is_due(const ContextPlan& plan, std::span<const size_t> stale, int64_t next, int64_t most);

// All stale parts of the stream, in order. The tokens see every token before them, as far as it is computed again, too,
// and are at their indices. What is chosen and computed depends on neither threads nor the size of a pass.
void refresh_parts(StreamRef stream, const ContextPlan& plan, std::span<const size_t> stale, ModelRunner& runner);

// The `share` of the tokens, rounded up, that deviate the most; of equal ones the earlier. Ascending indices.
std::vector<int64_t> most_deviating(std::span<const double> deviations, double share);

}  // namespace millrace
