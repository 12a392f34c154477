// The tier and the store that an engine's options name. swap_tokens is short for the tier memory:tokens=..., kv_ssd
// with its size and order for the store ssd:path=...,size=...,order=...
#pragma once

#include "base/choose.h"
#include "kv/tiers/places.h"
#include "millrace/options.h"

namespace millrace {

inline bool has_tier(const EngineOptions& options) { return options.swap_tokens > 0 || !options.kv_tier.empty(); }
inline bool has_store(const EngineOptions& options) { return !options.kv_ssd.empty() || !options.kv_store.empty(); }

using ChosenTier = ChosenMember<TierMember>;
using ChosenStore = ChosenMember<StoreMember>;
// Labels of the members that have short names.
inline constexpr const char* kMemoryTier = "KV tier memory";
inline constexpr const char* kSsdStore = "KV store ssd";

// Returns true if the store keeps blocks in order of their importance.
inline bool by_importance(const ChosenStore& store) {
  return store.options.given("order") && store.options.text("order") == "importance";
}

// Errors (user): unknown name or option, both forms at once. Only for options that have one.
Result<ChosenTier> chosen_tier(const EngineOptions& options);
Result<ChosenStore> chosen_store(const EngineOptions& options);

}  // namespace millrace
