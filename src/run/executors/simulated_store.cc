#include "run/executors/simulated_store.h"

#include <algorithm>
#include <unordered_map>

#include "kv/tiers/store_index.h"

namespace millrace {
namespace {

class SimulatedStore final : public PrefixStore {
 public:
  SimulatedStore(ManualClock& clock, const CostModel& cost, int64_t blocks, int64_t block_tokens,
                 int64_t& busy_until_ns)
      : clock_(clock), cost_(cost), block_tokens_(block_tokens), busy_until_ns_(busy_until_ns), index_(blocks) {}

  TierTicket lookup(std::span<const ChainLink> chain, int64_t) override {
    lookups_[++last_] = use(chain);
    return last_;
  }

  LookupProgress poll_lookup(TierTicket ticket) override {
    const auto found = lookups_.find(ticket);
    return found == lookups_.end() ? LookupProgress() : LookupProgress{TierState::ready, found->second};
  }

  void put(const ChainLink& link, BlockId, bool) override {
    if (index_.known(link.key)) {
      if (const int64_t slot = index_.find(link); slot >= 0) index_.use(slot);
      return;
    }
    bool dirty = false;
    const int64_t slot = index_.reserve(link, dirty);
    if (slot < 0) {
      ++stats_.dropped_blocks;
      return;
    }
    index_.publish(slot, {});
    ++stats_.written_blocks;
  }

  // Blocks just found may have been displaced by blocks that the pool evicted since: then the load is shorter.
  TierTicket load(std::span<const ChainLink> chain, std::span<const BlockId> into, const StateBehind&) override {
    const int64_t blocks = std::min(use(chain), std::ssize(into));
    const double seconds = blocks > 0 ? std::min(cost_.load_seconds(blocks * block_tokens_), 1e9) : 0;
    busy_until_ns_ = std::max(busy_until_ns_, clock_.now_ns()) + static_cast<int64_t>(seconds * 1e9);
    loads_[++last_] = {blocks, busy_until_ns_};
    stats_.read_blocks += blocks;
    return last_;
  }

  LoadProgress poll(TierTicket ticket) override {
    const auto found = loads_.find(ticket);
    if (found == loads_.end()) return {};
    if (clock_.now_ns() < found->second.ready_ns) return {TierState::busy};
    return {TierState::ready, 0, found->second.blocks};
  }

  bool wait_layer(TierTicket ticket, int64_t, double seconds) override {
    const auto found = loads_.find(ticket);
    if (found == loads_.end()) return true;
    const int64_t left = std::max<int64_t>(0, found->second.ready_ns - clock_.now_ns());
    const auto limit = static_cast<int64_t>(std::clamp(seconds, 0.0, kNoDeadline) * 1e9);
    clock_.advance_ns(std::min(left, limit));
    return left <= limit;
  }

  void erase(TierTicket ticket) override {
    lookups_.erase(ticket);
    loads_.erase(ticket);
  }
  void wait() override {}  // the simulation advances the clock

  int64_t loading_blocks() const override {
    int64_t blocks = 0;
    for (const auto& [ticket, load] : loads_) blocks += clock_.now_ns() < load.ready_ns ? load.blocks : 0;
    return blocks;
  }

  PrefixStoreStats stats() const override {
    PrefixStoreStats stats = stats_;
    stats.io = "simulated";
    stats.capacity = index_.capacity();
    stats.blocks = index_.size();
    return stats;
  }

 private:
  struct Load {
    int64_t blocks = 0, ready_ns = 0;
  };

  // The number of leading blocks that are stored, which become the most recently used ones.
  int64_t use(std::span<const ChainLink> chain) {
    found_.clear();
    for (const ChainLink& link : chain) {
      const int64_t slot = index_.find(link);
      if (slot < 0) break;
      found_.push_back(slot);
    }
    for (size_t i = found_.size(); i-- > 0;) index_.use(found_[i]);
    return std::ssize(found_);
  }

  ManualClock& clock_;
  const CostModel& cost_;
  int64_t block_tokens_;
  int64_t& busy_until_ns_;
  StoreIndex index_;
  std::vector<int64_t> found_;
  std::unordered_map<TierTicket, int64_t> lookups_;  // blocks that were found
  std::unordered_map<TierTicket, Load> loads_;
  TierTicket last_ = 0;
  PrefixStoreStats stats_;
};

}  // namespace

std::unique_ptr<PrefixStore> make_simulated_store(ManualClock& clock, const CostModel& cost, int64_t blocks,
                                                  int64_t block_tokens, int64_t& busy_until_ns) {
  return std::make_unique<SimulatedStore>(clock, cost, blocks, block_tokens, busy_until_ns);
}

}  // namespace millrace
