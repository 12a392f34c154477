#include "engine/token_evictions.h"

#include <algorithm>

namespace millrace {

void TokenEvictions::run(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (!stream.eviction || s.computed < s.kv.evict_at) return;
  const int64_t before = stream.eviction->mean_evicted();
  const auto kept = stream.eviction->decide();
  KvHome& home = loop_.executor->home();
  if (home.kv().layout().codec) {
    TokenEviction& eviction = *stream.eviction;
    home.compact_encoded({s.kv.blocks, s.kv.state, s.stored(), eviction.tokens().kept(), eviction.heads()});
  }
  ledger_.compact(stream);
  if (stream.eviction->rule().moves_keys())
    for_moved_runs(kept, [&](int64_t slot, int64_t count, int64_t positions) {
      home.move_keys(s.kv.blocks, slot, count, positions);
    });
  home.keys_changed(s.kv.blocks, first_moved(kept, stream.eviction->heads()), s.computed - stream.eviction->evicted());
  loop_.stats.evicted_tokens += stream.eviction->mean_evicted() - before;
  s.draft.stored = DraftState::kAll;  // slots have moved, so a token that the draft model lacks is not computed again
  note_eviction(stream);
  s.kv.reserved_blocks = std::min(s.kv.reserved_blocks, loop_.planner->promised_blocks(s, loop_.limits));
}

namespace {

// The slots of one head whose tokens were in slots [begin, end) while all were stored. `positions` are those of the
// first slots, with those of other heads between them; what follows them is behind all documents.
KeySegment left_of(const KeySegment& segment, std::span<const int32_t> positions, size_t head, size_t heads) {
  const auto slot = [&](int64_t token) {
    int64_t first = 0, end = std::ssize(positions) / static_cast<int64_t>(heads);
    while (first < end) {
      const int64_t middle = (first + end) / 2;
      if (positions[static_cast<size_t>(middle) * heads + head] < token)
        first = middle + 1;
      else
        end = middle;
    }
    return first;
  };
  KeySegment left = segment;
  left.begin = slot(segment.begin);
  if (segment.end != ContextPlan::kOpenEnd) left.end = slot(segment.end);
  return left;
}

// Of streams whose context weighs documents anew.
void note_sees(LiveStream& stream) {
  const TokenEviction* const eviction = stream.eviction.get();
  stream.sees = stream.context.sees;
  stream.sees_lists = 1;
  if (stream.sees.empty() || !eviction || eviction->decisions() == 0) return;
  const auto heads = static_cast<size_t>(eviction->heads());
  stream.sees_lists = eviction->heads();
  stream.sees.clear();
  for (size_t head = 0; head < heads; ++head)
    for (const KeySegment& segment : stream.context.sees)
      stream.sees.push_back(left_of(segment, eviction->positions(), head, heads));
}

}  // namespace

void note_eviction(LiveStream& stream) {
  note_sees(stream);
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
