#include "engine/token_evictions.h"

#include <algorithm>

namespace millrace {

void TokenEvictions::run(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (!stream.eviction || s.computed < s.kv.evict_at) return;
  const int64_t before = stream.eviction->evicted();
  ledger_.compact(stream, stream.eviction->decide(), stream.eviction->heads());
  loop_.stats.evicted_tokens += stream.eviction->evicted() - before;
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
}

}  // namespace millrace
