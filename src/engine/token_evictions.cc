#include "engine/token_evictions.h"

namespace millrace {

void TokenEvictions::run(std::span<const StepWork> work) {
  for (const StepWork& item : work) {
    LiveStream& stream = *item.stream;
    Sequence& s = stream.sequence;
    if (!stream.eviction || s.computed < s.kv.evict_at) continue;
    ledger_.compact(stream, stream.eviction->decide());
    loop_.stats.evicted_tokens += stream.eviction->evicted() - s.kv.left_out;
    s.kv.left_out = stream.eviction->evicted();
    s.kv.most_stored = stream.eviction->most_stored();
    s.kv.evict_at = stream.eviction->next();
    s.kv.reserved_blocks = loop_.planner->promised_blocks(s, loop_.limits);
  }
}

}  // namespace millrace
