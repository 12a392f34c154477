// PrefixEvictor: decides which block of the prefix index is evicted first. A policy is a stateless function that ranks
// a block by its usage data, so the engine's index and the cache model of a trace study use the same policies.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

#include "base/registry.h"

namespace millrace {

// Usage data of one indexed block.
struct PrefixUse {
  int64_t depth = 0;     // number of blocks before it in its prompt
  int64_t uses = 0;      // number of times it was stored or found
  int64_t last_use = 0;  // counts calls of the index, not seconds: blocks of one prompt are meant to tie
  double stored_seconds = 0;
  double last_seconds = 0;  // time of its last use
  double importance = 0;    // attention mass relative to an even share; 0: never observed
  double keep_until = 0;    // on the same clock; until then it is evicted only as a last resort
};

// Compared field by field; the block with the lowest rank is evicted first.
struct EvictRank {
  int64_t first = 0, second = 0, third = 0;
  auto operator<=>(const EvictRank&) const = default;
};

// Data that an evictor needs in addition to uses and times; computed only for the selected evictor.
enum PrefixNeeds : uint32_t { kNeedsNothing = 0, kNeedsAttentionMass = 1 };

struct PrefixEvictor {
  std::string_view name;  // as typed: --prefix-evict lru
  std::string_view summary;
  std::string_view paper;
  // Pure. Called only for blocks without indexed successors: a block cannot be found once a block before it is gone.
  EvictRank (*rank)(const PrefixUse& use);
  PrefixNeeds needs = kNeedsNothing;
};

const Registry<const PrefixEvictor*>& prefix_evictors();
const PrefixEvictor* find_prefix_evictor(std::string_view name);  // null: unknown name

}  // namespace millrace
