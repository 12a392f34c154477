#include "engine/store_repair.h"

#include <algorithm>

namespace millrace {

StoreRepair find_gap(const PrefixStore& store, std::span<const ChainLink> chain, int64_t first, int64_t found) {
  int64_t last = std::ssize(chain);
  while (!store.is_shared() && last > found && !store.holds(chain[static_cast<size_t>(last - 1)])) --last;
  // With recurrent layers, whole blocks may be behind the last state.
  while (!store.is_shared() && found < last && store.holds(chain[static_cast<size_t>(found)])) ++found;
  return {first + found, first + last};
}

void repair(PrefixStore& store, LiveStream& stream, int64_t block_tokens) {
  const Sequence& s = stream.sequence;
  StoreRepair& gap = stream.repair;
  const int64_t end = std::min(gap.end, s.computed / block_tokens);
  if (gap.first >= end || !s.prefix.caches || s.kv.left_out > 0 || !store.has_room()) return;
  const auto chain =
      prefix_chain(std::span(s.tokens).first(static_cast<size_t>(end * block_tokens)), block_tokens, s.prefix.scope);
  for (; gap.first < end && store.has_room(); ++gap.first) {
    const auto block = static_cast<size_t>(gap.first);
    ChainLink link = chain[block];
    if (block < stream.importance.size()) link.importance = stream.importance[block];
    store.put(link, s.kv.blocks[block], false);
  }
}

}  // namespace millrace
