// drop_tokens(): runs a decision of a stream's evictor, and moves the kept tokens to the stream's first slots. It moves
// their rows, or their encoded form if a codec is used, and rotates keys whose positions change. Then the attention
// pattern's summaries of the blocks are computed again. For streams that run without an engine.
#pragma once

#include "kv/compact_kept.h"
#include "models/model_runner.h"

namespace millrace {

// Called between passes. `computed`: number of computed tokens of the stream. `table(g)`: see compact_kept(). `state`:
// slot of the stream's KV tail, if a codec has one.
template <typename TableOf>
void drop_tokens(ModelRunner& runner, TokenEviction& eviction, int64_t computed, StateId state, const TableOf& table) {
  const int64_t stored = computed - eviction.evicted();
  const auto kept = eviction.decide();
  if (runner.kv().layout().codec)
    runner.compact_encoded({table(0), state, stored, kept, eviction.heads()});
  else
    compact_kept(runner.kv(), eviction, table);
  if (eviction.rule().moves_keys())
    for_moved_runs(kept, [&](int64_t slot, int64_t count, int64_t positions) {
      runner.move_keys(table(0), slot, count, positions);
    });
  runner.renew_summaries(table(0), first_moved(kept, eviction.heads()), computed - eviction.evicted());
}

}  // namespace millrace
