// PrefixEvictor: which block of the prefix index goes first when room is needed. A policy is one rank function over
// what the index knows of a block: stateless, so that the index of an engine and the cache of a trace study use the
// same one.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

#include "base/registry.h"

namespace millrace {

// What is known of one indexed block.
struct PrefixUse {
  int64_t depth = 0;     // blocks before it in its prompt
  int64_t uses = 0;      // times it was stored or found
  int64_t last_use = 0;  // counts calls of the index, not seconds: ties between blocks of one prompt are wanted
  double stored_seconds = 0;
  double last_seconds = 0;  // of its last use
  double importance = 0;    // attention mass, in even shares; 0: nobody has looked
  double keep_until = 0;    // on the same clock; until then it goes only when nothing else is left
};

// Compared field by field; the block with the lowest rank goes first.
struct EvictRank {
  int64_t first = 0, second = 0, third = 0;
  auto operator<=>(const EvictRank&) const = default;
};

// What an evictor wants to know beyond uses and times; computed only if the chosen one does.
enum PrefixNeeds : uint32_t { kNeedsNothing = 0, kNeedsAttentionMass = 1 };

struct PrefixEvictor {
  std::string_view name;  // as typed: --prefix-evict lru
  std::string_view summary;
  std::string_view paper;
  // Pure. Only blocks that no other block follows are asked about: what stands before an indexed block stays, or the
  // block could never be found again.
  EvictRank (*rank)(const PrefixUse& use);
  PrefixNeeds needs = kNeedsNothing;
};

const Registry<const PrefixEvictor*>& prefix_evictors();
const PrefixEvictor* find_prefix_evictor(std::string_view name);  // null: there is none

}  // namespace millrace
