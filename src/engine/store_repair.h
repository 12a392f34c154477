// Repair of the prefix store in passing: blocks of a stream's prompt that the store lost or found damaged are stored
// again as soon as the stream has computed them, so the next request with that prompt finds them.
//
//   chain of the prompt   [ A  B  C  D  E  F ]
//   store has               A  B        E           C and D are missing before one that it has: they are stored again
#pragma once

#include <span>

#include "engine/live_stream.h"
#include "kv/tiers/prefix_store.h"

namespace millrace {

// The gap in the store behind `found` blocks of `chain`, whose first block is the stream's block `first`. Empty where
// the store has nothing behind it, unless the store is shared: then it is the whole rest of the chain.
StoreRepair find_gap(const PrefixStore& store, std::span<const ChainLink> chain, int64_t first, int64_t found);
// Stores the computed blocks of the stream's gap, as many as the store has room for now.
void repair(PrefixStore& store, LiveStream& stream, int64_t block_tokens);

}  // namespace millrace
