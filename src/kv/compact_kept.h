// compact_kept(): after a decision of a stream's evictor, the kept rows of each of its block tables move to the first
// slots.
#pragma once

#include "kv/pool.h"
#include "kv/token_eviction.h"

namespace millrace {

// `table(g)` is the stream's block table of layer g if layers have their own blocks, or of all layers (g is 0).
template <typename TableOf>
void compact_kept(KvPool& pool, TokenEviction& eviction, const TableOf& table) {
  if (!pool.by_layer()) return pool.compact(table(0), eviction.tokens().kept(), eviction.heads());
  for (int64_t g = 0; g < pool.groups(); ++g)
    pool.compact_layer(g, table(g), eviction.tokens(eviction.layers() > 1 ? g : 0).kept(), eviction.heads());
}

}  // namespace millrace
