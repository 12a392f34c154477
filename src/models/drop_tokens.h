// drop_tokens(): a stream's evictor decides, and the tokens that the stream keeps are moved to its first slots: rows or
// encoded tokens, keys with new positions, and the data of an attention pattern about the blocks. For streams without
// an engine.
#pragma once

#include "kv/compact_kept.h"
#include "models/model_runner.h"

namespace millrace {

// Between passes. `computed`: tokens of the stream so far. `table(g)`: as of compact_kept(). `state`: the stream's KV
// tail, where a codec has one.
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
