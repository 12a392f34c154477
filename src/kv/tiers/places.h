// The registered places for keys and values outside the pool: tiers hold those of preempted streams (tier.h), stores
// the blocks evicted from the prefix index (prefix_store.h). Each is one file under members/ and one line in
// builtin.cc; the engine sees only the two interfaces, so a place on another machine is one more member.
#pragma once

#include <memory>
#include <string>

#include "base/registry.h"
#include "kv/tiers/prefix_store.h"

namespace millrace {

struct TierMember {
  // Upper bound of the memory that it will take. Errors: user.
  Result<int64_t> (*memory)(const KvLayout& layout, const OptionValues& options);
  // `pool` must outlive it. Errors: user, resource.
  Result<std::unique_ptr<KvTier>> (*make)(KvPool& pool, const OptionValues& options);
};

struct StoreMember {
  // Returns the memory, as above: buffers and index, not data stored elsewhere.
  Result<int64_t> (*memory)(const KvLayout& layout, const OptionValues& options);
  // `identity` names model and arithmetic: with the pool's layout it says which blocks the store may return. Errors:
  // user, resource, unsupported.
  Result<std::unique_ptr<PrefixStore>> (*make)(KvPool& pool, std::string identity, const OptionValues& options);
};

const Registry<TierMember>& kv_tiers();
const Registry<StoreMember>& kv_stores();

}  // namespace millrace
