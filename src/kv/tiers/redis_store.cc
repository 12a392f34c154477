#include "kv/tiers/redis_store.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "kv/tiers/redis_worker.h"

namespace millrace {
namespace {

constexpr size_t kMaxKnown = 1 << 18;  // keys that are remembered; then all are forgotten
constexpr int64_t kKnownBytes = 64;    // of each

class RedisStore final : public PrefixStore {
 public:
  RedisStore(KvPool& pool, const RedisStoreOptions& options)
      : pool_(pool),
        shape_(ImageShape::of(pool.layout())),
        deadline_(options.deadline_seconds),
        worker_(pool, options, shape_, store_identity(identity_text(pool.layout(), options.identity_text))) {
    if (worker_.started()) worker_.wait_for_connection(deadline_);
  }

  bool started() const { return worker_.started(); }
  std::string refusal() { return worker_.refusal(); }

  TierTicket lookup(std::span<const ChainLink> chain) override {
    collect();
    auto lookup = std::make_shared<RedisLookup>();
    for (const ChainLink& link : chain) lookup->keys.push_back(link.key);
    lookups_[++last_] = lookup;
    worker_.push(std::move(lookup));
    return last_;
  }

  LookupProgress poll_lookup(TierTicket ticket) override {
    const auto found = lookups_.find(ticket);
    if (found == lookups_.end()) return {};
    const RedisLookup& lookup = *found->second;
    bool done = false;
    worker_.look_at([&] { done = lookup.done; });
    if (!done) return {TierState::busy};
    if (lookup.answered < lookup.keys.size()) return {TierState::ready, 0};  // there is no connection
    for (size_t i = 0; i < lookup.keys.size(); ++i) {
      if (lookup.there[i])
        remember(lookup.keys[i]);
      else
        known_.erase(lookup.keys[i]);
    }
    return {TierState::ready, std::ranges::find(lookup.there, char{0}) - lookup.there.begin()};
  }

  void put(const ChainLink& link, BlockId block, bool wait) override {
    collect();
    if (known_.contains(link.key)) return;
    if (!worker_.take_room(wait ? deadline_ : 0)) {
      ++stats_.dropped_blocks;
      return;
    }
    auto image = AlignedBuffer::allocate(shape_.image_bytes(), "KV store writes");
    if (!image.ok()) {
      worker_.return_room();
      ++stats_.dropped_blocks;
      return;
    }
    copy_parts_out(pool_, block, shape_, {image->data(), static_cast<size_t>(shape_.image_bytes())});
    StoreRecord record;
    record.key = link.key;
    record.parent = link.parent;
    record.tokens.assign(link.tokens.begin(), link.tokens.end());
    record.importance = link.importance;
    remember(link.key);
    worker_.push(RedisWrite{std::move(record), std::move(*image)});
  }

  bool has_room() override { return worker_.has_room(); }
  bool holds(const ChainLink& link) const override { return known_.contains(link.key); }
  bool is_shared() const override { return true; }
  double deadline_seconds() const override { return deadline_; }

  TierTicket load(std::span<const ChainLink> chain, std::span<const BlockId> into) override {
    auto load = std::make_shared<RedisLoad>();
    for (size_t i = 0; i < chain.size() && i < into.size(); ++i)
      load->blocks.push_back(
          {chain[i].key, chain[i].parent, {chain[i].tokens.begin(), chain[i].tokens.end()}, into[i]});
    loading_blocks_ += std::ssize(load->blocks);
    loads_[++last_] = {load, false};
    worker_.push(std::move(load));
    return last_;
  }

  LoadProgress poll(TierTicket ticket) override {
    const auto found = loads_.find(ticket);
    if (found == loads_.end()) return {};
    Load& load = found->second;
    LoadProgress progress{TierState::busy};
    worker_.look_at([&] {
      progress.blocks = std::ranges::find_if(load.load->states,
                                             [](RedisLoad::State state) { return state != RedisLoad::State::good; }) -
                        load.load->states.begin();
      if (!load.load->done) return;
      progress.state = TierState::ready;
      progress.layers = shape_.layers();
      progress.seconds = load.load->seconds;
    });
    if (progress.state == TierState::ready && !load.settled) settle(load);
    return progress;
  }

  bool wait_layer(TierTicket ticket, int64_t, double seconds) override {
    const auto found = loads_.find(ticket);
    return found == loads_.end() || worker_.wait_until_done(*found->second.load, seconds);
  }

  void erase(TierTicket ticket) override {
    if (const auto lookup = lookups_.extract(ticket)) worker_.give_up(*lookup.mapped());
    const auto found = loads_.find(ticket);
    if (found == loads_.end()) return;
    Load& load = found->second;
    worker_.give_up(*load.load);
    if (!load.settled) loading_blocks_ -= std::ssize(load.load->blocks);
    loads_.erase(found);
  }

  void wait() override { worker_.wait_a_little(); }
  int64_t loading_blocks() const override { return loading_blocks_; }

  PrefixStoreStats stats() const override {
    PrefixStoreStats stats = stats_;
    stats.io = "redis";
    stats.capacity = -1;
    stats.blocks = std::ssize(known_);
    stats.connected = worker_.connected();
    return stats;
  }

 private:
  struct Load {
    std::shared_ptr<RedisLoad> load;
    bool settled = false;  // its result has been accounted for
  };

  void remember(const PrefixKey& key) {
    if (known_.size() >= kMaxKnown) known_.clear();
    known_.insert(key);
  }

  // Collects completed writes.
  void collect() {
    worker_.collect(written_);
    for (const RedisWritten& one : written_) {
      if (one.ok) {
        ++stats_.written_blocks;
        stats_.written_bytes += shape_.image_bytes();
      } else {
        known_.erase(one.key);
        ++stats_.dropped_blocks;
      }
    }
  }

  // Settles a completed load, which no longer changes. Blocks that did not arrive intact may be stored again.
  void settle(Load& load) {
    load.settled = true;
    loading_blocks_ -= std::ssize(load.load->blocks);
    for (size_t i = 0; i < load.load->blocks.size(); ++i) {
      const RedisLoad::State state = load.load->states[i];
      if (state == RedisLoad::State::good) {
        ++stats_.read_blocks;
        stats_.read_bytes += shape_.image_bytes();
        continue;
      }
      known_.erase(load.load->blocks[i].key);
      stats_.corrupt_blocks += state == RedisLoad::State::damaged;
    }
  }

  KvPool& pool_;
  const ImageShape shape_;
  const double deadline_;
  std::unordered_set<PrefixKey, PrefixKeyHash> known_;  // on the server, or on the way there
  std::unordered_map<TierTicket, std::shared_ptr<RedisLookup>> lookups_;
  std::unordered_map<TierTicket, Load> loads_;
  std::vector<RedisWritten> written_;
  TierTicket last_ = 0;
  int64_t loading_blocks_ = 0;
  PrefixStoreStats stats_;
  RedisWorker worker_;
};

}  // namespace

int64_t redis_store_memory(const KvLayout& layout) {
  return RedisWorker::max_bytes(ImageShape::of(layout)) + static_cast<int64_t>(kMaxKnown) * kKnownBytes;
}

Result<std::unique_ptr<PrefixStore>> make_redis_store(KvPool& pool, const RedisStoreOptions& options) {
  auto store = std::make_unique<RedisStore>(pool, options);
  if (!store->started())
    return Error::resource("KV store: the system starts no thread for it; raise its limit of threads");
  if (const std::string refusal = store->refusal(); !refusal.empty())
    return Error::user("KV store: the Redis server refuses the connection: " + refusal);
  return std::unique_ptr<PrefixStore>(std::move(store));
}

}  // namespace millrace
