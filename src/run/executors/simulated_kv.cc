#include "run/executors/simulated_kv.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/memory_accounts.h"
#include "run/executors/simulated_store.h"

namespace millrace {

class SimulatedKv::Tier final : public KvTier {
 public:
  Tier(SimulatedKv& home, int64_t tokens) : home_(home), free_tokens_(tokens) {}

  int64_t free_tokens() const override { return free_tokens_; }
  Result<TierTicket> put(std::span<const BlockId>, int64_t tokens) override {
    if (tokens > free_tokens_)
      return Error::resource(fmt::format("KV tier: {} tokens do not fit, {} are free", tokens, free_tokens_));
    free_tokens_ -= tokens;
    entries_[++last_] = {tokens, move(tokens)};
    return last_;
  }
  Result<void> get(TierTicket ticket, std::span<const BlockId>) override {
    auto found = entries_.find(ticket);
    if (found == entries_.end()) return Error::internal("KV tier: no such ticket");
    found->second.ready_ns = move(found->second.tokens);
    return {};
  }
  TierState poll(TierTicket ticket) override {
    auto found = entries_.find(ticket);
    if (found == entries_.end()) return TierState::failed;
    return home_.time_.clock.now_ns() >= found->second.ready_ns ? TierState::ready : TierState::busy;
  }
  void erase(TierTicket ticket) override {
    auto found = entries_.find(ticket);
    if (found == entries_.end()) return;
    free_tokens_ += found->second.tokens;
    entries_.erase(found);
  }

 private:
  struct Entry {
    int64_t tokens = 0;
    int64_t ready_ns = 0;
  };
  int64_t move(int64_t tokens) {
    int64_t& bus = home_.bus_free_ns_;
    bus = std::max(bus, home_.time_.clock.now_ns()) + simulated_ns(home_.time_.cost->swap_seconds(tokens));
    return bus;
  }

  SimulatedKv& home_;
  int64_t free_tokens_;
  TierTicket last_ = 0;
  std::unordered_map<TierTicket, Entry> entries_;
};

Result<std::unique_ptr<KvTier>> SimulatedKv::make_tier(int64_t tokens) {
  return std::unique_ptr<KvTier>(std::make_unique<Tier>(*this, tokens_for(tokens, ratio_)));
}

Result<std::unique_ptr<PrefixStore>> SimulatedKv::make_store(const ChosenStore& chosen) {
  if (chosen.label != kSsdStoreLabel) return Error::unsupported("KV store: a simulation has the store ssd only");
  MILLRACE_TRY(const int64_t tokens, parse_bytes(chosen.options.text("size")));
  const int64_t block_tokens = kv().layout().block_tokens, blocks = tokens_for(tokens, ratio_) / block_tokens;
  if (blocks < 1)
    return Error::user(fmt::format("KV store: {} tokens are less than a block of {}", tokens, block_tokens));
  return make_simulated_store(time_.clock, *time_.cost, blocks, block_tokens, disk_free_ns_);
}

int64_t SimulatedKv::next_move_ns() const {
  const int64_t now = time_.clock.now_ns(), bus = bus_free_ns_ > now ? bus_free_ns_ : INT64_MAX,
                disk = disk_free_ns_ > now ? disk_free_ns_ : INT64_MAX;
  return std::min(bus, disk) == INT64_MAX ? 0 : std::min(bus, disk);
}

}  // namespace millrace
