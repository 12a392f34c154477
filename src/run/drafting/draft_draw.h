// Draws from one row of logits of a draft model's pass: the token that the stream's sampling would choose there, with
// the random number that plain decoding has at that position. Used by the runners of draft models.
#pragma once

#include <span>

#include "sampling/row.h"
#include "speculate/draft_model.h"

namespace millrace {

// A chain with more is not copied for a drafted token.
inline constexpr size_t kMaxClonedBytes = size_t{8} << 20;

// Returns true if the steps of the stream's chain must first accept the drafted tokens, so that a copy of the chain
// draws them.
bool follows_tokens(const Request& request);

// Sets the results that `run` asks for from the logits [vocab] behind its last token; changes the logits. An error
// makes a draft that is rejected: the engine's own choice reports it.
void draw_next(DraftRun& run, std::span<float> logits, SamplingRow& scratch);

// Draws behind its `index`-th pick.
void draw_pick(const DraftRun& run, size_t index, std::span<float> logits, SamplingRow& scratch);

// Draws behind a token that `end` tokens come before. `follows`: these are the stream's tokens and the first of its
// draft. Otherwise a chain that must accept them draws nothing, and the likeliest token is taken, if the run weighs.
void draw_beside(const DraftRun& run, DraftPick& pick, int64_t end, bool follows, std::span<float> logits,
                 SamplingRow& scratch);

}  // namespace millrace
