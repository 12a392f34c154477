// Moves what a pool stores of one token from one slot of a stream to another: a kept token of a tree goes where it
// would be in a chain. Rows are whole tokens of one head, so this works in every format whose rows are independent.
#pragma once

#include <span>

#include "kv/pool.h"

namespace millrace {

// No other stream may hold the block of slot `to`.
void move_token(KvPool& pool, std::span<const BlockId> table, int64_t from, int64_t to);

}  // namespace millrace
