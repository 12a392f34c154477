// Combinations of engine options that an executor refuses before it takes memory. Errors: user, unsupported, which say
// what to choose instead.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kv/pool.h"
#include "millrace/options.h"

namespace millrace {

// What streams with a recurrent state cannot do yet.
Result<void> check_recurrent(const EngineOptions& options);

// A KV codec encodes whole blocks, in which kept tokens of a tree cannot move to the slots of a chain.
Result<void> check_codec(const EngineOptions& options);

// An attention pattern has no rule for the branches of a tree.
Result<void> check_pattern_drafter(const EngineOptions& options);

// Layers of the pool: the model's `own_layers` come first, then those that a drafter has added.
Result<void> check_all_layers(const EngineOptions& options, const KvLayout& layout, int64_t own_layers,
                              int64_t context);

}  // namespace millrace
