// Computes parts of documents again whose keys have moved, for contexts that ask for it (ContextPart::refreshes()): in
// separate passes, between the steps of the engine. Not thread-safe.
#pragma once

#include <vector>

#include "models/model_runner.h"
#include "run/live_stream.h"

namespace millrace {

// Returns true if the stream's stale parts must be computed again before its token `next` runs: that token sees them,
// or they have as many tokens as a pass may take, `most`. Tokens of a part see no other part, so tokens of several
// parts can share a pass, and with it one reading of the weights.
bool refresh_is_due(const LiveStream& stream, int64_t next, int64_t most);

// Computes all stale parts of the stream again, in order. The tokens see every token before them, including those
// computed again, and are at their indices. The choice of tokens and the results depend on neither threads nor the size
// of a pass.
void refresh_parts(const LiveStream& stream, ModelRunner& runner);

// The `share` of the tokens, rounded up, that deviate the most; of equal ones the earlier. Ascending indices.
std::vector<int64_t> most_deviating(std::span<const double> deviations, double share);

}  // namespace millrace
