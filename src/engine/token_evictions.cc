#include "engine/token_evictions.h"

#include <algorithm>

namespace millrace {

void TokenEvictions::run(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (!stream.eviction || s.computed < s.kv.evict_at) return;
  const int64_t before = stream.eviction->mean_evicted();
  const auto kept = stream.eviction->decide();
  if (loop_.kv().layout().codec) loop_.executor->compact_encoded(stream);
  ledger_.compact(stream);
  if (stream.eviction->rule().moves_keys())
    for_moved_runs(kept, [&](int64_t slot, int64_t count, int64_t positions) {
      loop_.executor->move_keys(s.kv.blocks, slot, count, positions);
    });
  loop_.executor->keys_changed(s.kv.blocks, first_moved(kept, stream.eviction->heads()),
                               s.computed - stream.eviction->evicted());
  loop_.stats.evicted_tokens += stream.eviction->mean_evicted() - before;
  s.draft.stored = DraftState::kAll;  // slots have moved, so a token that the draft model lacks is not computed again
  note_eviction(stream);
  s.kv.reserved_blocks = std::min(s.kv.reserved_blocks, loop_.planner->promised_blocks(s, loop_.limits));
}

void note_eviction(LiveStream& stream) {
  if (!stream.eviction) return;
  KvState& kv = stream.sequence.kv;
  kv.left_out = stream.eviction->evicted();
  kv.most_stored = stream.eviction->most_stored();
  kv.evict_at = stream.eviction->next();
  if (!kv.by_layer) return;
  for (size_t g = 0; g < kv.windows.size(); ++g) {
    const int64_t layer = stream.eviction->layers() > 1 ? static_cast<int64_t>(g) + 1 : 0;
    kv.windows[g].left_out = stream.eviction->evicted(layer);
    kv.windows[g].most_stored = stream.eviction->most_stored(layer);
  }
}

}  // namespace millrace
