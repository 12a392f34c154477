#include "kv/tiers/remote_store.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kMaxKnown = 1 << 18;  // keys that are remembered; then all are forgotten
constexpr int64_t kKnownBytes = 64;    // of each

}  // namespace

RemoteStore::RemoteStore(KvPool& pool, std::unique_ptr<RemoteLink> link, const RemoteTimes& times,
                         const std::string& identity_text, std::string_view name, bool waits)
    : pool_(pool),
      shape_(ImageShape::of(pool.layout())),
      deadline_(times.deadline_seconds),
      name_(name),
      worker_(pool, std::move(link), times, shape_,
              store_identity(millrace::identity_text(pool.layout(), identity_text))) {
  if (waits && worker_.started()) worker_.wait_for_connection(deadline_);
}

int64_t RemoteStore::max_bytes(const KvLayout& layout) {
  return RemoteWorker::max_bytes(ImageShape::of(layout)) + static_cast<int64_t>(kMaxKnown) * kKnownBytes;
}

// With recurrent layers, the first piece of the state behind each block is looked for, too. The other side has the
// others in general; a load without one of them brings nothing.
TierTicket RemoteStore::lookup(std::span<const ChainLink> chain, int64_t held) {
  collect();
  Lookup lookup{std::make_shared<RemoteLookup>(), std::min(held, std::ssize(chain)), std::ssize(chain)};
  lookup.lookup->lease = lease_;
  std::vector<PrefixKey>& keys = lookup.lookup->keys;
  for (const ChainLink& link : chain.subspan(static_cast<size_t>(lookup.held))) keys.push_back(link.key);
  if (shape_.state_pieces() > 0)
    for (const ChainLink& link : chain) keys.push_back(StatePiece(link.key, 0, shape_.block_tokens).link().key);
  worker_.push(lookup.lookup);
  lookups_[++last_] = std::move(lookup);
  return last_;
}

LookupProgress RemoteStore::poll_lookup(TierTicket ticket) {
  const auto found = lookups_.find(ticket);
  if (found == lookups_.end()) return {};
  const RemoteLookup& lookup = *found->second.lookup;
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

int64_t RemoteStore::Lookup::usable() const {
  const auto there = std::span(lookup->there);
  const auto asked = there.first(static_cast<size_t>(chain - held));
  int64_t blocks = held + (std::ranges::find(asked, char{0}) - asked.begin());
  const auto states = there.subspan(asked.size());
  if (!states.empty())
    while (blocks > 0 && !states[static_cast<size_t>(blocks - 1)]) --blocks;
  return blocks;
}

void RemoteStore::put(const ChainLink& link, BlockId block, bool wait) {
  collect();
  if (known_.contains(link.key)) return;
  if (worker_.take_room(wait ? deadline_ : 0))
    write(link, block);
  else
    ++stats_.dropped_blocks;
}

void RemoteStore::put_state(const StateBehind& state, bool wait) {
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

TierTicket RemoteStore::load(std::span<const ChainLink> chain, std::span<const BlockId> into,
                             const StateBehind& state) {
  auto load = std::make_shared<RemoteLoad>();
  load->lease = lease_;
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

LoadProgress RemoteStore::poll(TierTicket ticket) {
  const auto found = loads_.find(ticket);
  if (found == loads_.end()) return {};
  Load& load = found->second;
  LoadProgress progress{TierState::busy};
  worker_.look_at([&] {
    const auto& states = load.load->states;
    const int64_t whole =
        std::ranges::find_if(states, [](auto state) { return state != RemoteLoad::State::good; }) - states.begin();
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

bool RemoteStore::wait_layer(TierTicket ticket, int64_t /*layer*/, double seconds) {
  const auto found = loads_.find(ticket);
  return found == loads_.end() || worker_.wait_until_done(*found->second.load, seconds);
}

void RemoteStore::erase(TierTicket ticket) {
  if (const auto lookup = lookups_.extract(ticket)) worker_.give_up(*lookup.mapped().lookup);
  const auto found = loads_.find(ticket);
  if (found == loads_.end()) return;
  Load& load = found->second;
  worker_.give_up(*load.load);
  if (!load.settled) loading_blocks_ -= std::ssize(load.load->blocks);
  loads_.erase(found);
}

PrefixStoreStats RemoteStore::stats() const {
  PrefixStoreStats stats = stats_;
  stats.io = name_;
  stats.capacity = -1;
  stats.blocks = std::ssize(known_);
  stats.connected = worker_.connected();
  stats.state_blocks = shape_.state_pieces();
  return stats;
}

// Sends an image for which there is room.
void RemoteStore::write(const ChainLink& link, const ImagePlace& from) {
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
  worker_.push(RemoteWrite{std::move(record), std::move(*image)});
}

void RemoteStore::remember(const PrefixKey& key) {
  if (known_.size() >= kMaxKnown) known_.clear();
  known_.insert(key);
}

// Collects completed writes.
void RemoteStore::collect() {
  worker_.collect(written_);
  for (const RemoteWritten& one : written_) {
    if (one.ok) {
      ++stats_.written_blocks;
      stats_.written_bytes += shape_.image_bytes();
    } else {
      known_.erase(one.key);
      ++stats_.dropped_blocks;
    }
  }
}

// Settles a completed load, which no longer changes. Blocks that arrived are there: a lookup had asked for one piece of
// a state only. Blocks that did not arrive intact may be stored again.
void RemoteStore::settle(Load& load) {
  load.settled = true;
  loading_blocks_ -= std::ssize(load.load->blocks);
  for (size_t i = 0; i < load.load->blocks.size(); ++i) {
    const RemoteLoad::State state = load.load->states[i];
    if (state == RemoteLoad::State::good) {
      ++stats_.read_blocks;
      stats_.read_bytes += shape_.image_bytes();
      remember(load.load->blocks[i].key);
      continue;
    }
    known_.erase(load.load->blocks[i].key);
    stats_.corrupt_blocks += state == RemoteLoad::State::damaged;
  }
}

}  // namespace millrace
