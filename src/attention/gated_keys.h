// Attention of queries from which gates hide keys (key_lifetimes.h). As in visible_keys.h, the keys that a query sees
// are numbered from 0 and cut into partitions of 256 keys. So a query's result is bit-identical to that of a plain
// stream that holds only the keys it sees. It does not matter whether hidden keys are still stored.
#pragma once

#include "attention/key_lifetimes.h"
#include "attention/partial.h"
#include "attention/visible_keys.h"

namespace millrace {

// Writes the unit's result to `total`, with zero sums for tokens that attend to nothing. `partial`: scratch with as
// many rows as `total`.
void attend_gated(const VisibleUnit& unit, const KeyLifetimes::Span& lifetimes, const Partial& total,
                  const Partial& partial);

}  // namespace millrace
