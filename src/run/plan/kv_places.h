// The tier and the store that an engine's options name.
#pragma once

#include <cstdint>
#include <string>

#include "base/choose.h"
#include "kv/tiers/places.h"
#include "millrace/options.h"

namespace millrace {

using ChosenTier = ChosenMember<TierMember>;
using ChosenStore = ChosenMember<StoreMember>;
// Labels of the members that have short flags.
inline constexpr const char* kMemoryTierLabel = "KV tier memory";
inline constexpr const char* kSsdStoreLabel = "KV store ssd";

// Returns the text of EngineOptions::kv_tier for host memory with room for this many tokens; "" for 0, no tier.
std::string memory_tier(int64_t tokens);

// The options of the store ssd, as --kv-ssd and its flags give them.
struct SsdStoreFlags {
  std::string path;
  int64_t size = int64_t{8} << 30;  // bytes; tokens in a simulation
  std::string order = "arrival";
  double fetch = 1;

  std::string text() const;  // for EngineOptions::kv_store; "": `path` is empty
};

// Returns true if the store keeps blocks in order of their importance.
inline bool by_importance(const ChosenStore& store) {
  return store.options.given("order") && store.options.text("order") == "importance";
}

// Returns the fraction of a prompt's stored blocks that the store fetches; 1 unless its option `fetch` says otherwise.
inline double fetched_fraction(const ChosenStore& store) {
  return store.options.given("fetch") ? store.options.number("fetch") : 1;
}

// Errors (user): unknown name or option; a store fetches a part of a prompt without the order of importance.
Result<ChosenTier> choose_tier(const std::string& text);
Result<ChosenStore> choose_store(const std::string& text);

}  // namespace millrace
