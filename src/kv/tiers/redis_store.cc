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

  // With recurrent layers, the first piece of the state behind each block is looked for, too. The server has the others
  // in general; a load without one of them brings nothing.
  TierTicket lookup(std::span<const ChainLink> chain, int64_t held) override {
    collect();
    Lookup lookup{std::make_shared<RedisLookup>(), std::min(held, std::ssize(chain)), std::ssize(chain)};
    std::vector<PrefixKey>& keys = lookup.lookup->keys;
    for (const ChainLink& link : chain.subspan(static_cast<size_t>(lookup.held))) keys.push_back(link.key);
    if (shape_.state_pieces() > 0)
      for (const ChainLink& link : chain) keys.push_back(StatePiece(link.key, 0, shape_.block_tokens).link().key);
    worker_.push(lookup.lookup);
    lookups_[++last_] = std::move(lookup);
    return last_;
  }

  LookupProgress poll_lookup(TierTicket ticket) override {
    const auto found = lookups_.find(ticket);
    if (found == lookups_.end()) return {};
    const RedisLookup& lookup = *found->second.lookup;
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
    return {TierState::ready, found->second.usable()};
  }

  void put(const ChainLink& link, BlockId block, bool wait) override {
    collect();
    if (known_.contains(link.key)) return;
    if (worker_.take_room(wait ? deadline_ : 0))
      write(link, block);
    else
      ++stats_.dropped_blocks;
  }

  void put_state(const StateBehind& state, bool wait) override {
    collect();
    std::vector<int64_t> unknown;
    for (int64_t i = 0; i < shape_.state_pieces(); ++i)
      if (!known_.contains(StatePiece(state.key, i, shape_.block_tokens).link().key)) unknown.push_back(i);
    if (unknown.empty()) return;
    if (!worker_.take_room(wait ? deadline_ : 0, std::ssize(unknown))) {
      stats_.dropped_blocks += std::ssize(unknown);
      return;
    }
    for (const int64_t i : unknown) write(StatePiece(state.key, i, shape_.block_tokens).link(), {state.slot, i});
  }

  bool has_room() override { return worker_.has_room(); }
  bool holds(const ChainLink& link) const override { return known_.contains(link.key); }
  bool is_shared() const override { return true; }
  double deadline_seconds() const override { return deadline_; }

  TierTicket load(std::span<const ChainLink> chain, std::span<const BlockId> into, const StateBehind& state) override {
    auto load = std::make_shared<RedisLoad>();
    const auto add = [&](const ChainLink& link, const ImagePlace& place) {
      load->blocks.push_back({link.key, link.parent, {link.tokens.begin(), link.tokens.end()}, place});
    };
    for (size_t i = 0; i < chain.size() && i < into.size(); ++i) add(chain[i], into[i]);
    const int64_t blocks = std::ssize(load->blocks), pieces = state.slot < 0 ? 0 : shape_.state_pieces();
    for (int64_t i = 0; i < pieces; ++i) add(StatePiece(state.key, i, shape_.block_tokens).link(), {state.slot, i});
    loading_blocks_ += std::ssize(load->blocks);
    loads_[++last_] = {load, blocks, false};
    worker_.push(std::move(load));
    return last_;
  }

  LoadProgress poll(TierTicket ticket) override {
    const auto found = loads_.find(ticket);
    if (found == loads_.end()) return {};
    Load& load = found->second;
    LoadProgress progress{TierState::busy};
    worker_.look_at([&] {
      const auto& states = load.load->states;
      const int64_t whole =
          std::ranges::find_if(states, [](auto state) { return state != RedisLoad::State::good; }) - states.begin();
      progress.blocks = std::min(load.blocks, whole);
      if (!load.load->done) return;
      progress.state_arrived = load.blocks < std::ssize(states) && whole == std::ssize(states);
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
    if (const auto lookup = lookups_.extract(ticket)) worker_.give_up(*lookup.mapped().lookup);
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
    stats.state_blocks = shape_.state_pieces();
    return stats;
  }

 private:
  // keys: the blocks of the chain behind the held ones, then the state behind each block of the chain, if there is one
  struct Lookup {
    std::shared_ptr<RedisLookup> lookup;
    int64_t held = 0, chain = 0;

    // Leading blocks that can continue a stream, once the lookup is done.
    int64_t usable() const {
      const auto there = std::span(lookup->there);
      const auto asked = there.first(static_cast<size_t>(chain - held));
      int64_t blocks = held + (std::ranges::find(asked, char{0}) - asked.begin());
      const auto states = there.subspan(asked.size());
      if (!states.empty())
        while (blocks > 0 && !states[static_cast<size_t>(blocks - 1)]) --blocks;
      return blocks;
    }
  };
  struct Load {
    std::shared_ptr<RedisLoad> load;
    int64_t blocks = 0;    // blocks in it; pieces of a state follow
    bool settled = false;  // its result has been accounted for
  };

  // Sends an image for which there is room.
  void write(const ChainLink& link, const ImagePlace& from) {
    auto image = AlignedBuffer::allocate(shape_.image_bytes(), "KV store writes");
    if (!image.ok()) {
      worker_.return_room();
      ++stats_.dropped_blocks;
      return;
    }
    copy_parts_out(pool_, from, shape_, {image->data(), static_cast<size_t>(shape_.image_bytes())});
    StoreRecord record;
    record.key = link.key;
    record.parent = link.parent;
    record.tokens.assign(link.tokens.begin(), link.tokens.end());
    record.importance = link.importance;
    remember(link.key);
    worker_.push(RedisWrite{std::move(record), std::move(*image)});
  }

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

  // Settles a completed load, which no longer changes. Blocks that arrived are on the server: a lookup had asked for
  // one piece of a state only. Blocks that did not arrive intact may be stored again.
  void settle(Load& load) {
    load.settled = true;
    loading_blocks_ -= std::ssize(load.load->blocks);
    for (size_t i = 0; i < load.load->blocks.size(); ++i) {
      const RedisLoad::State state = load.load->states[i];
      if (state == RedisLoad::State::good) {
        ++stats_.read_blocks;
        stats_.read_bytes += shape_.image_bytes();
        remember(load.load->blocks[i].key);
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
  std::unordered_map<TierTicket, Lookup> lookups_;
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
