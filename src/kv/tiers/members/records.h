// The built-in tiers and stores.
#pragma once

#include "kv/tiers/places.h"

namespace millrace {

extern const TierMember kMemoryTier;
extern const TierMember kDiskTier;
extern const StoreMember kSsdStore;
extern const StoreMember kRedisStore;
extern const StoreMember kNodeStore;

}  // namespace millrace
