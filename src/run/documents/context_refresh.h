// Computes parts of documents again whose keys have moved, for contexts that ask for it (ContextPart::refreshes()): in
// separate passes, between the steps of the engine. Not thread-safe.
#pragma once

#include <span>
#include <vector>

#include "context/document_context.h"
#include "models/model_runner.h"
#include "run/executors/executor_stream.h"

namespace millrace {

// Returns true if a stream's stale parts, which have these indices, must be computed again before its token `next`
// runs: that token sees them, or they have as many tokens as a pass may take, `most`. Tokens of a part see no other
// part, so tokens of several parts can share a pass, and with it one reading of the weights.
bool refresh_is_due(const ContextPlan& plan, std::span<const size_t> stale, int64_t next, int64_t most);

// Computes all stale parts of the stream again, in order. The tokens see every token before them, including those
// computed again, and are at their indices. The choice of tokens and the results depend on neither threads nor the size
// of a pass.
void refresh_parts(StreamRef stream, const ContextPlan& plan, std::span<const size_t> stale, ModelRunner& runner);

// The `share` of the tokens, rounded up, that deviate the most; of equal ones the earlier. Ascending indices.
std::vector<int64_t> most_deviating(std::span<const double> deviations, double share);

}  // namespace millrace
