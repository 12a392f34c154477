// compact_kept(): after a decision of a stream's evictor, the kept rows of each of its block tables move to the first
// slots.
#pragma once

#include "kv/pool.h"
#include "kv/token_eviction.h"

namespace millrace {

// `table(g)` is the stream's block table of group g. In the groups of layers with a window no tokens are dropped.
template <typename TableOf>
void compact_kept(KvPool& pool, TokenEviction& eviction, const TableOf& table) {
  for (int64_t g = 0; g < pool.layout().tables(); ++g)
    pool.compact(table(g), eviction.tokens(eviction.layers() > 1 ? g : 0).kept(), eviction.heads(), g);
}

}  // namespace millrace
