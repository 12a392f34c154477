// The registered places for keys and values outside the pool: tiers hold those of preempted streams (tier.h), stores
// the blocks evicted from the prefix index (prefix_store.h). Each is one file under members/ and one line in
// builtin.cc; the engine sees only the two interfaces, so a place on another machine is one more member.
#pragma once

#include <memory>
#include <string>

#include "base/registry.h"
#include "kv/tiers/prefix_store.h"

namespace millrace {

// How a tier holds the blocks of running streams that have no memory of their own (tiers/layer_file.h).
struct KeyStreamOptions {
  std::string folder;       // folder of the file
  int64_t memory = 0;       // bytes of keys and values in memory; 0: what the memory budget leaves
  bool reads_ahead = true;  // reads a layer while the one before it computes
};

// A tier is of preempted streams, with memory() and make(), or of running ones, with stream().
struct TierMember {
  // Upper bound of the memory that it will take. Errors: user.
  Result<int64_t> (*memory)(const KvLayout& layout, const OptionValues& options) = nullptr;
  // `pool` must outlive it. Errors: user, resource.
  Result<std::unique_ptr<KvTier>> (*make)(KvPool& pool, const OptionValues& options) = nullptr;
  // Errors: user.
  Result<KeyStreamOptions> (*stream)(const OptionValues& options) = nullptr;
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
