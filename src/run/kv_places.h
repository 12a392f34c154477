// The tier and the store that an engine's options name. swap_tokens is short for the tier memory:tokens=..., kv_ssd
// with its size and order for the store ssd:path=...,size=...,order=...
#pragma once

#include "base/choose.h"
#include "kv/tiers/places.h"
#include "millrace/options.h"

namespace millrace {

inline bool has_tier(const EngineOptions& options) { return options.swap_tokens > 0 || !options.kv_tier.empty(); }
inline bool has_store(const EngineOptions& options) { return !options.kv_ssd.empty() || !options.kv_store.empty(); }

// Errors (user): unknown name or option, both forms at once. Only for options that have one.
Result<ChosenMember<TierMember>> chosen_tier(const EngineOptions& options);
Result<ChosenMember<StoreMember>> chosen_store(const EngineOptions& options);

}  // namespace millrace
