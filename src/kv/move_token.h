// Moves the keys and values that a pool stores of one token to another slot of the stream. A kept token of a tree is
// moved to the slot that it would have in a chain. A row is one token of one head, so this works in every format whose
// rows are independent.
#pragma once

#include <span>

#include "kv/pool.h"

namespace millrace {

// No other stream may hold the block of slot `to`.
void move_token(KvPool& pool, std::span<const BlockId> table, int64_t from, int64_t to);

}  // namespace millrace
