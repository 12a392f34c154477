// SimulatedKv: the keys and values of a simulated machine: blocks without bytes, and a tier and a prefix store that
// move them at the cost model's speed, one move after the other. Not thread-safe.
#pragma once

#include "run/kv_home.h"
#include "run/simulated_time.h"

namespace millrace {

class SimulatedKv final : public KvHome {
 public:
  // `ratio`: bytes of a token, in those of F16, for which the sizes of caches are given. Both outlive the object.
  SimulatedKv(KvPool& pool, const SimulatedTime& time, double ratio) : KvHome(pool), time_(time), ratio_(ratio) {}

  // Tokens that take the bytes of `tokens` in F16.
  static int64_t tokens_for(int64_t tokens, double ratio) {
    return static_cast<int64_t>(static_cast<double>(tokens) / ratio);
  }

  Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) override;
  // Blocks have no bytes here: the store's size counts tokens, and no file is made.
  Result<std::unique_ptr<PrefixStore>> make_store(const ChosenStore& chosen) override;

  // When the next move of the tier or the prefix store ends; 0: there is none.
  int64_t next_move_ns() const;

 private:
  class Tier;

  const SimulatedTime& time_;
  double ratio_;
  int64_t disk_free_ns_ = 0;  // of the prefix store
  int64_t bus_free_ns_ = 0;   // end of the last move begun so far
};

}  // namespace millrace
