// RemoteStore: a prefix store in another process, over a link (remote_link.h). Blocks are images (block_image.h). All
// of the network is on one thread of its own (remote_worker.h). Without a connection nothing is found, nothing is
// stored, and no stream waits. The other side evicts blocks as it likes; this side remembers which ones it has seen
// there, so as not to send them again.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kv/tiers/prefix_store.h"
#include "kv/tiers/remote_worker.h"

namespace millrace {

class RemoteStore final : public PrefixStore {
 public:
  // `pool` must outlive it. `name`: a literal that names the kind of store in the statistics. `waits`: the constructor
  // waits for the first connection up to the deadline; a process that is not there is no error.
  RemoteStore(KvPool& pool, std::unique_ptr<RemoteLink> link, const RemoteTimes& times,
              const std::string& identity_text, std::string_view name, bool waits);

  bool started() const { return worker_.started(); }  // false: the system started no thread; do not use it
  std::string refusal() { return worker_.refusal(); }
  // Upper bound of its memory: queue of writes, buffers, and the keys that it remembers.
  static int64_t max_bytes(const KvLayout& layout);

  // Lookups and loads from now on are made under this lease; 0: none.
  void use_lease(uint64_t lease) { lease_ = lease; }
  bool idle() const { return lookups_.empty() && loads_.empty(); }

  TierTicket lookup(std::span<const ChainLink> chain, int64_t held) override;
  LookupProgress poll_lookup(TierTicket ticket) override;
  double deadline_seconds() const override { return deadline_; }
  bool is_shared() const override { return true; }
  void put(const ChainLink& link, BlockId block, bool wait) override;
  void put_state(const StateBehind& state, bool wait) override;
  bool has_room() override { return worker_.has_room(); }
  bool holds(const ChainLink& link) const override { return known_.contains(link.key); }
  TierTicket load(std::span<const ChainLink> chain, std::span<const BlockId> into, const StateBehind& state) override;
  LoadProgress poll(TierTicket ticket) override;
  bool wait_layer(TierTicket ticket, int64_t layer, double seconds) override;
  void erase(TierTicket ticket) override;
  void wait() override { worker_.wait_a_little(); }
  int64_t loading_blocks() const override { return loading_blocks_; }
  PrefixStoreStats stats() const override;

 private:
  // keys: the blocks of the chain behind the held ones, then the state behind each block of the chain, if there is one
  struct Lookup {
    std::shared_ptr<RemoteLookup> lookup;
    int64_t held = 0, chain = 0;

    // Leading blocks that can continue a stream, once the lookup is done.
    int64_t usable() const;
  };
  struct Load {
    std::shared_ptr<RemoteLoad> load;
    int64_t blocks = 0;    // blocks in it; pieces of a state follow
    bool settled = false;  // its result has been accounted for
  };
  void write(const ChainLink& link, const ImagePlace& from);
  void remember(const PrefixKey& key);
  void collect();
  void settle(Load& load);

  KvPool& pool_;
  const ImageShape shape_;
  const double deadline_;
  const std::string_view name_;
  uint64_t lease_ = 0;
  std::unordered_set<PrefixKey, PrefixKeyHash> known_;  // on the other side, or on the way there
  std::unordered_map<TierTicket, Lookup> lookups_;
  std::unordered_map<TierTicket, Load> loads_;
  std::vector<RemoteWritten> written_;
  TierTicket last_ = 0;
  int64_t loading_blocks_ = 0;
  PrefixStoreStats stats_;
  RemoteWorker worker_;
};

}  // namespace millrace
