// KvHome: where an executor keeps keys and values: the pool of its blocks, the tiers and stores that blocks are moved
// to, and what identifies keys and values outside the engine. The engine allocates blocks, moves keys whose positions
// have changed, and tells the home about them. Engine thread only.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "attention/codec_tiles.h"
#include "kv/pool.h"
#include "kv/tiers/prefix_store.h"
#include "kv/tiers/tier.h"
#include "millrace/engine.h"
#include "run/plan/kv_places.h"

namespace millrace {

class KvHome {
 public:
  // `pool` outlives the home.
  explicit KvHome(KvPool& pool) : pool_(pool) {}
  virtual ~KvHome() = default;
  KvHome(const KvHome&) = delete;
  KvHome& operator=(const KvHome&) = delete;

  KvPool& kv() const { return pool_; }

  // Memory for the keys and values of preempted streams, `tokens` of them. Errors: resource.
  virtual Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) = 0;
  // The tier of preempted streams. Errors: user, resource, unsupported.
  virtual Result<std::unique_ptr<KvTier>> make_swap(const ChosenTier& chosen) {
    if (chosen.label != kMemoryTierLabel) return Error::unsupported("KV tier: not with this executor");
    return make_tier(chosen.options.integer("tokens"));
  }
  // The store of blocks that leave the prefix index. Errors: user, resource, unsupported.
  virtual Result<std::unique_ptr<PrefixStore>> make_store(const ChosenStore& /*chosen*/) {
    return Error::unsupported("KV store: not with this executor");
  }
  // Text for everything that keys and values depend on besides tokens and adapters. Engines with equal texts may
  // exchange keys and values. Called between steps; takes a block of the pool for a moment. Errors: resource,
  // unsupported.
  virtual Result<std::string> kv_identity() {
    return Error::unsupported("KV file: this executor has no keys and values");
  }
  // From now on every forward() calls `ready(layer)` before the layer's attention, on its own thread. Returns false if
  // the executor cannot do this; streams must then have all their blocks before they run.
  virtual bool before_attention(std::function<void(int64_t)>) { return false; }

  // Reads of keys that have no memory of their own.
  virtual KeyStreamStats key_stream() const { return {}; }

  // Moves the keys in `count` slots from `slot` on to positions higher by `positions`.
  virtual void move_keys(std::span<const BlockId> /*blocks*/, int64_t /*slot*/, int64_t /*count*/,
                         int64_t /*positions*/) {}
  // Only for a pool whose first group has a codec: moves the slots that a stream keeps to the stream's first slots.
  virtual void compact_encoded(const KeptSlots& /*slots*/) {}
  // Called after the tokens or keys in slots [begin, end) of a stream have changed.
  virtual void keys_changed(std::span<const BlockId> /*blocks*/, int64_t /*begin*/, int64_t /*end*/) {}

 private:
  KvPool& pool_;
};

}  // namespace millrace
