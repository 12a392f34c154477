#include "kv/transfer/node_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_map>
#include <vector>

#include "kv/tiers/remote_store.h"
#include "kv/transfer/block_exchange.h"
#include "kv/transfer/transport.h"

namespace millrace {
namespace {

constexpr size_t kMaxPeers = 16;  // other nodes that blocks are read from

bool is_this_machine(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

class NodeStore final : public PrefixStore {
 public:
  NodeStore(KvPool& pool, NodeStoreOptions options, std::shared_ptr<BlockExchange> exchange)
      : pool_(pool),
        options_(std::move(options)),
        exchange_(std::move(exchange)),
        shape_(ImageShape::of(pool.layout())),
        identity_(store_identity(identity_text(pool.layout(), options_.identity_text))) {}

  // Errors: user, resource.
  Result<void> connect() {
    if (options_.host.empty()) return {};
    store_ = open(options_.host, options_.port, options_.transport, true);
    if (!store_) return Error::resource("KV store: the system starts no thread for it; raise its limit of threads");
    if (const std::string refusal = store_->refusal(); !refusal.empty())
      return Error::user("KV store: the node refuses the connection: " + refusal);
    return {};
  }

  TierTicket lookup(std::span<const ChainLink> chain, int64_t held) override {
    const auto ticket = exchange_ ? exchange_->source_of(chain) : std::nullopt;
    RemoteStore* from = ticket ? peer(*ticket) : store_.get();
    Job job{from, 0, ticket ? ticket->lease : 0, {}};
    if (from) {
      from->use_lease(job.lease);
      job.ticket = from->lookup(chain, held);
    }
    jobs_[++last_] = std::move(job);
    return last_;
  }

  LookupProgress poll_lookup(TierTicket ticket) override {
    const auto found = jobs_.find(ticket);
    if (found == jobs_.end()) return {};
    if (!found->second.from) return {TierState::ready, 0};
    const LookupProgress progress = found->second.from->poll_lookup(found->second.ticket);
    if (progress.state == TierState::ready) {  // a load is of what was just found
      from_ = found->second.from;
      lease_ = found->second.lease;
    }
    return progress;
  }

  double deadline_seconds() const override { return options_.deadline_seconds; }
  bool is_shared() const override { return true; }
  // The router has decided that this node does not compute the prompt.
  bool always_loads() const override { return lease_ != 0; }

  void put(const ChainLink& link, BlockId block, bool wait) override {
    keep(link, block);
    if (store_) store_->put(link, block, wait);
  }
  void put_state(const StateBehind& state, bool wait) override {
    for (int64_t i = 0; i < shape_.state_pieces(); ++i)
      keep(StatePiece(state.key, i, shape_.block_tokens).link(), {state.slot, i});
    if (store_) store_->put_state(state, wait);
  }
  bool has_room() override { return shelf() || (store_ && store_->has_room()); }
  bool holds(const ChainLink& link) const override { return store_ && store_->holds(link); }

  TierTicket load(std::span<const ChainLink> chain, std::span<const BlockId> into, const StateBehind& state) override {
    Job job{from_, 0, lease_, {}};
    if (from_) {
      from_->use_lease(lease_);
      job.ticket = from_->load(chain, into, state);
    }
    if (from_ && from_ == store_.get() && shelf()) job.loaded = loaded(chain, into, state);
    jobs_[++last_] = std::move(job);
    return last_;
  }

  LoadProgress poll(TierTicket ticket) override {
    const auto found = jobs_.find(ticket);
    if (found == jobs_.end()) return {};
    Job& job = found->second;
    if (!job.from) return {TierState::ready};
    const LoadProgress progress = job.from->poll(job.ticket);
    if (progress.state == TierState::ready) offer(std::exchange(job.loaded, {}), progress);
    return progress;
  }

  bool wait_layer(TierTicket ticket, int64_t layer, double seconds) override {
    const auto found = jobs_.find(ticket);
    if (found == jobs_.end() || !found->second.from) return true;
    return found->second.from->wait_layer(found->second.ticket, layer, seconds);
  }
  void erase(TierTicket ticket) override {
    const auto found = jobs_.find(ticket);
    if (found == jobs_.end()) return;
    if (found->second.from) found->second.from->erase(found->second.ticket);
    jobs_.erase(found);
  }
  void wait() override {
    for (const auto& [ticket, job] : jobs_)
      if (job.from) return job.from->wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  int64_t loading_blocks() const override {
    int64_t blocks = store_ ? store_->loading_blocks() : 0;
    for (const Peer& peer : peers_) blocks += peer.store->loading_blocks();
    return blocks;
  }

  PrefixStoreStats stats() const override {
    PrefixStoreStats all;
    if (store_) all = store_->stats();
    all.io = "node";
    all.capacity = -1;
    all.state_blocks = shape_.state_pieces();
    for (const Peer& peer : peers_) {
      const PrefixStoreStats one = peer.store->stats();
      all.read_blocks += one.read_blocks;
      all.read_bytes += one.read_bytes;
      all.corrupt_blocks += one.corrupt_blocks;
    }
    return all;
  }

 private:
  // Blocks that are being loaded, for the shelf.
  struct Loaded {
    std::vector<PrefixKey> keys, parents;
    std::vector<std::vector<TokenId>> tokens;
    std::vector<BlockId> into;
    StateBehind state;
  };
  // A lookup or a load.
  struct Job {
    RemoteStore* from = nullptr;  // null: there is nothing to ask
    TierTicket ticket = 0;        // of `from`
    uint64_t lease = 0;
    Loaded loaded;
  };
  struct Peer {
    std::string place;
    std::unique_ptr<RemoteStore> store;
  };

  BlockShelf* shelf() const { return exchange_ ? exchange_->shelf() : nullptr; }

  // Null: no thread.
  std::unique_ptr<RemoteStore> open(const std::string& host, int port, const std::string& transport, bool waits) {
    const TransportMember* member = &transports().find(transport)->member;
    if (member->same_machine && !is_this_machine(host)) member = &transports().find("tcp")->member;
    TransportOptions to{host, port, {}, identity_, shape_.image_bytes()};
    if (exchange_) to.token = exchange_->options().server.token;
    auto store = std::make_unique<RemoteStore>(pool_, member->link(std::move(to)),
                                               RemoteTimes{.deadline_seconds = options_.deadline_seconds},
                                               options_.identity_text, "node", waits);
    return store->started() ? std::move(store) : nullptr;
  }

  // The link to the node that the ticket names; null: there is no room for one more.
  RemoteStore* peer(const BlockTicket& ticket) {
    const std::string place = fmt::format("{} {}", ticket.host, ticket.port);
    const auto known = std::ranges::find(peers_, place, &Peer::place);
    if (known != peers_.end()) {
      std::rotate(known, known + 1, peers_.end());  // the last one was used last
      return peers_.back().store.get();
    }
    if (peers_.size() >= kMaxPeers) {
      const auto idle = std::ranges::find_if(peers_, [](const Peer& one) { return one.store->idle(); });
      if (idle == peers_.end()) return nullptr;
      if (from_ == idle->store.get()) from_ = nullptr;
      peers_.erase(idle);
    }
    auto store = open(ticket.host, ticket.port, exchange_->options().transport, false);
    if (!store) return nullptr;
    peers_.push_back({place, std::move(store)});
    return peers_.back().store.get();
  }

  // Puts a block or a piece of a state on the shelf.
  void keep(const ChainLink& link, const ImagePlace& from) {
    if (!shelf()) return;
    shelf()->put({identity_, link.key}, link.parent, shape_.image_bytes(), [&](std::span<uint8_t> image) {
      copy_parts_out(pool_, from, shape_, image);
      StoreRecord record;
      record.key = link.key;
      record.parent = link.parent;
      record.tokens.assign(link.tokens.begin(), link.tokens.end());
      record.importance = link.importance;
      seal_image(shape_, identity_, record, image);
    });
  }

  static Loaded loaded(std::span<const ChainLink> chain, std::span<const BlockId> into, const StateBehind& state) {
    Loaded out{.state = state};
    for (const ChainLink& link : chain) {
      out.keys.push_back(link.key);
      out.parents.push_back(link.parent);
      out.tokens.emplace_back(link.tokens.begin(), link.tokens.end());
    }
    out.into.assign(into.begin(), into.end());
    return out;
  }

  // Other nodes may read the loaded blocks from this node, as they may read those that it computed.
  void offer(const Loaded& loaded, const LoadProgress& progress) {
    for (size_t i = 0; i < loaded.keys.size() && static_cast<int64_t>(i) < progress.blocks; ++i)
      keep({loaded.keys[i], loaded.parents[i], loaded.tokens[i]}, loaded.into[i]);
    if (loaded.state.slot < 0 || !progress.state_arrived) return;
    for (int64_t i = 0; i < shape_.state_pieces(); ++i)
      keep(StatePiece(loaded.state.key, i, shape_.block_tokens).link(), {loaded.state.slot, i});
  }

  KvPool& pool_;
  const NodeStoreOptions options_;
  const std::shared_ptr<BlockExchange> exchange_;
  const ImageShape shape_;
  const StoreIdentity identity_;
  std::unique_ptr<RemoteStore> store_;  // the store node; null: none
  std::vector<Peer> peers_;             // least recently used first
  std::unordered_map<TierTicket, Job> jobs_;
  TierTicket last_ = 0;
  RemoteStore* from_ = nullptr;  // what the last lookup that is ready had asked, and under which lease
  uint64_t lease_ = 0;
};

}  // namespace

int64_t node_store_memory(const KvLayout& layout, const NodeStoreOptions& options) {
  constexpr int64_t kReadBytes = int64_t{24} << 20;  // of a link that only reads
  const int64_t links = options.exchange.empty() ? 0 : 2;
  return links * (kReadBytes + 6 * ImageShape::of(layout).image_bytes()) +
         (options.host.empty() ? 0 : RemoteStore::max_bytes(layout));
}

Result<std::unique_ptr<PrefixStore>> make_node_store(KvPool& pool, const NodeStoreOptions& options) {
  auto exchange = options.exchange.empty() ? nullptr : BlockExchange::find(options.exchange);
  if (!options.exchange.empty() && !exchange)
    return Error::user(fmt::format("KV store: no exchange has the name '{}'", options.exchange));
  if (!transports().find(options.transport))
    return Error::user(
        fmt::format("KV store: unknown transport '{}'; available: {}", options.transport, transports().names()));
  auto store = std::make_unique<NodeStore>(pool, options, std::move(exchange));
  MILLRACE_TRY_VOID(store->connect());
  return std::unique_ptr<PrefixStore>(std::move(store));
}

}  // namespace millrace
