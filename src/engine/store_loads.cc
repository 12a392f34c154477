#include "engine/store_loads.h"

#include <algorithm>
#include <utility>

#include "engine/store_fetch.h"
#include "engine/store_repair.h"

namespace millrace {

StoreLoads::StoreLoads(LoopContext& loop, StreamLists& lists, BlockLedger& ledger, PrefixCache& cache,
                       StateCopies& states, double fetch)
    : loop_(loop),
      lists_(lists),
      ledger_(ledger),
      cache_(cache),
      states_(states),
      store_(cache.store()),
      fetch_(fetch) {
  if (!store_ || cache_.copies_states()) return;  // a chunk begins with the state of all layers
  joins_early_ = loop_.executor->home().before_attention([this](int64_t layer) { wait_layer(layer); });
}

StoreLoads::~StoreLoads() {
  for (auto& [id, stream] : lists_.table()) cancel(*stream);
}

int64_t StoreLoads::deadline() const {
  return loop_.now() +
         static_cast<int64_t>(std::clamp(store_->deadline_seconds(), 0.0, PrefixStore::kNoDeadline) * 1e9);
}

double StoreLoads::seconds_until(int64_t deadline) const {
  return std::max(0.0, static_cast<double>(deadline - loop_.now()) * 1e-9);
}

// The full blocks behind the stream's computed tokens.
std::vector<ChainLink> StoreLoads::missing_blocks(const LiveStream& stream) const {
  const Sequence& s = stream.sequence;
  const int64_t block_tokens = loop_.limits.block_tokens;
  auto chain =
      prefix_chain(std::span(s.tokens).first(static_cast<size_t>(s.adoptable())), block_tokens, s.prefix.scope);
  chain.erase(chain.begin(), chain.begin() + std::min(s.computed / block_tokens, std::ssize(chain)));
  return chain;
}

// Blocks behind the computed tokens that the prefix index has, without a state behind them.
int64_t StoreLoads::held_blocks(const LiveStream& stream) const {
  if (!cache_.copies_states()) return 0;
  const Sequence& s = stream.sequence;
  return std::max<int64_t>(0, cache_.stored_tokens(s) - s.computed) / loop_.limits.block_tokens;
}

void StoreLoads::start(LiveStream& stream) {
  if (!store_) return;
  stream.repair = {};
  const auto behind = missing_blocks(stream);
  if (behind.empty()) return;
  const int64_t held = held_blocks(stream);
  stream.lookup = {store_->lookup(behind, held), deadline(), held};
  stream.sequence.phase = StreamPhase::looking_up;
  ++lookups_;
  poll_lookup(stream);  // a store in this process has the answer already
}

void StoreLoads::poll_lookup(LiveStream& stream) {
  const LookupProgress progress = store_->poll_lookup(stream.lookup.ticket);
  if (progress.state == TierState::busy) {
    if (loop_.now() < stream.lookup.deadline) return;
    ++loop_.stats.store.late_lookups;
  }
  const int64_t held = stream.lookup.held;
  end_lookup(stream);
  if (progress.state == TierState::ready) load(stream, progress.blocks, std::min(held, progress.blocks));
}

void StoreLoads::end_lookup(LiveStream& stream) {
  store_->erase(stream.lookup.ticket);
  stream.lookup = {};
  stream.sequence.phase = StreamPhase::running;
  --lookups_;
}

// Predicts the time until blocks are loaded, behind those of the loads in flight.
double StoreLoads::load_seconds(int64_t blocks) const {
  return loop_.cost->load_seconds((blocks + store_->loading_blocks()) * loop_.limits.block_tokens);
}

// Borrows a slot for the state and shares the blocks that the prefix index has. Returns false if there is no slot, or
// if some of these blocks have left the index.
bool StoreLoads::begin_state(LiveStream& stream, int64_t held) {
  Sequence& s = stream.sequence;
  PrefixIndex& index = *cache_.index();
  if (held_blocks(stream) < held) return false;
  const StateId slot = index.states().lend();
  if (slot < 0) return false;
  const int64_t first = s.computed / loop_.limits.block_tokens;
  const auto tokens = std::span(s.tokens).first(static_cast<size_t>(s.adoptable()));
  ledger_.cut(stream, first);
  ledger_.extend(stream, index.share(tokens, s.prefix.scope, first, first + held));
  lists_.mark_shared(s);
  stream.load = {.from = s.computed, .state = slot};
  return true;
}

// Ends a load of a state. If it arrived, the stream continues from it and the slot becomes a copy, behind blocks that
// the prefix index has by now. If not, the slot and the blocks are returned.
void StoreLoads::end_state(LiveStream& stream, bool arrived) {
  Sequence& s = stream.sequence;
  const StateId slot = std::exchange(stream.load.state, -1);
  PrefixIndex& index = *cache_.index();
  if (!arrived) {
    index.states().take_back(slot);
    ledger_.cut(stream, stream.load.from / loop_.limits.block_tokens);
    return;
  }
  loop_.kv().states().copy(slot, s.kv.state);
  index.adopt_state(std::span(s.tokens).first(static_cast<size_t>(s.computed)), s.prefix.scope, slot);
  states_.loaded(stream);
}

// Begins to load the blocks that were found, if that is faster than computing their tokens. The prefix index has the
// first `held` of them.
void StoreLoads::load(LiveStream& stream, int64_t found, int64_t held) {
  Sequence& s = stream.sequence;
  const auto behind = missing_blocks(stream);
  const int64_t block_tokens = loop_.limits.block_tokens, first = s.computed / block_tokens;
  stream.repair = find_gap(*store_, behind, first, found);
  if (found == 0) return;
  const auto stored = std::span(behind).subspan(static_cast<size_t>(held), static_cast<size_t>(found - held));
  const auto chosen = choose_blocks(*store_, stream, stored, fetch_);
  const int64_t blocks = held + std::ssize(chosen), end = s.computed + found * block_tokens;
  const double load = load_seconds(std::ssize(chosen) + store_->stats().state_blocks);
  const double compute = loop_.cost->prefill_seconds(end, loop_.limits.batch_tokens) -
                         loop_.cost->prefill_seconds(s.computed, loop_.limits.batch_tokens);
  if (load >= compute && !store_->always_loads()) {
    loop_.stats.store.passed_tokens += end - s.computed;
    return;
  }
  if (cache_.copies_states() && !begin_state(stream, held)) return;
  if (!ledger_.reserve(stream, s.computed + blocks * block_tokens)) {
    if (stream.load.state >= 0) end_state(stream, false);
    return;
  }
  std::vector<ChainLink> fetched;
  for (size_t i : chosen) fetched.push_back(stored[i]);
  if (blocks == found) take_importance(*store_, stream, static_cast<size_t>(first + held), fetched);
  const auto into = std::span(s.kv.blocks).subspan(static_cast<size_t>(first + held)).first(fetched.size());
  const StateId state = stream.load.state;
  stream.load = {.ticket = store_->load(fetched, into, {behind[static_cast<size_t>(found - 1)].key, state}),
                 .blocks = blocks,
                 .held = held,
                 .from = s.computed,
                 .left_out = (found - blocks) * block_tokens,
                 .deadline = deadline(),
                 .state = state};
  s.phase = StreamPhase::loading;
  ++loads_;
}

// Whether the stream's next chunk takes longer than the rest of its load: then the layers that arrive while the first
// ones are computed delay no other stream. `layers` have arrived.
bool StoreLoads::may_join(const LiveStream& stream, int64_t layers) const {
  const Sequence& s = stream.sequence;
  const int64_t all = std::max<int64_t>(1, static_cast<int64_t>(loop_.kv().layout().layers.size()));
  const int64_t end = stream.load.from + stream.load.blocks * loop_.limits.block_tokens;
  StepShape next;
  next.add(end, std::min(loop_.limits.batch_tokens, s.size() - end), true, s.depth);
  const double left = load_seconds(0) * static_cast<double>(all - layers) / static_cast<double>(all);
  return left <= loop_.cost->step_seconds(next);
}

// Outside of the step, `computed` counts only tokens whose keys and values have arrived.
void StoreLoads::join() {
  if (loads_ == 0 || !joins_early_) return;
  for (const auto& stream : lists_.running()) {
    Sequence& s = stream->sequence;
    const PrefixLoad& load = stream->load;
    if (!load.active() || load.left_out > 0 || !may_join(*stream, store_->poll(load.ticket).layers)) continue;
    s.computed = load.from + load.blocks * loop_.limits.block_tokens;
    s.phase = StreamPhase::running;
  }
}

void StoreLoads::part() {
  if (loads_ == 0) return;
  for (const auto& stream : lists_.running()) {
    if (!stream->load.active()) continue;
    stream->sequence.computed = stream->load.from;
    stream->sequence.phase = StreamPhase::loading;
  }
}

// During a pass, before the layer's attention. All deadlines are fixed, so that a pass waits for the latest of them at
// most, however many layers and loads it has.
void StoreLoads::wait_layer(int64_t layer) {
  for (const StepWork& item : in_forward_) {
    PrefixLoad& load = item.stream->load;
    if (!load.active() || load.late) continue;
    if (!store_->wait_layer(load.ticket, layer, seconds_until(load.deadline))) give_up(load);
  }
}

// The deadline has passed. From now on no byte of the load reaches the pool, so that the blocks can be computed.
void StoreLoads::give_up(PrefixLoad& load) {
  load.arrived = store_->poll(load.ticket).blocks;
  load.late = true;
  store_->erase(load.ticket);
  ++loop_.stats.store.late_loads;
}

void StoreLoads::flush() {
  if (store_) store_->flush();
}

void StoreLoads::begin_forward(std::span<const StepWork> work) { in_forward_ = work; }

void StoreLoads::end_forward(std::span<StepWork> work) {
  in_forward_ = {};
  for (StepWork& item : work) item.lost = item.stream->load.active() && !end_joined(*item.stream);
}

void StoreLoads::repair_store(std::span<const StepWork> work) {
  if (!store_) return;
  for (const StepWork& item : work)
    if (item.stream->repair.end > 0) repair(*store_, *item.stream, loop_.limits.block_tokens);
}

// The load is ready, in whole or in part. Blocks that arrived can be shared with the next prompts at once. False: some
// did not arrive.
bool StoreLoads::end(LiveStream& stream, LoadProgress progress) {
  Sequence& s = stream.sequence;
  PrefixLoad& load = stream.load;
  const bool with_state = load.state >= 0;
  if (with_state) progress.blocks = progress.state_arrived ? load.blocks : 0;
  const int64_t block_tokens = loop_.limits.block_tokens, tokens = progress.blocks * block_tokens;
  if (progress.seconds > 0 && progress.blocks == load.blocks) {
    const int64_t state_blocks = with_state ? store_->stats().state_blocks : 0;
    loop_.cost->observe_load((load.blocks - load.held + state_blocks) * block_tokens, progress.seconds);
  }
  loop_.stats.store.hit_tokens += tokens;
  loop_.stats.store.failed_tokens += load.blocks * block_tokens - tokens;
  if (!load.late) store_->erase(load.ticket);
  load.ticket = 0;
  --loads_;
  s.phase = StreamPhase::running;
  const bool whole = progress.blocks == load.blocks && !std::exchange(load.late, false);
  if (progress.blocks < load.blocks && load.left_out == 0) {
    stream.repair.end = std::max(stream.repair.end, load.from / block_tokens + load.blocks);
    stream.repair.first = load.from / block_tokens + progress.blocks;
  }
  if (load.left_out > 0) return end_partial(stream, progress);
  s.computed = load.from + tokens;
  if (s.progress.preemptions == 0) s.prefix.cached = s.computed;
  if (tokens > 0) {
    cache_.insert(stream);
    s.kv.shared_blocks = s.computed / block_tokens;
  }
  if (with_state) end_state(stream, tokens > 0);
  return whole;
}

// A load that left blocks out counts in whole or not at all. From then on the stream's keys and values are those of no
// prompt, and are not shared.
//
//   tokens  | from the pool | stored: A  B  C  D  E  F | computed ...
//   slots   | from the pool | A C F | computed ...
bool StoreLoads::end_partial(LiveStream& stream, const LoadProgress& progress) {
  Sequence& s = stream.sequence;
  PrefixLoad& load = stream.load;
  s.computed = load.from;
  const bool whole = progress.blocks == load.blocks;
  const int64_t left_out = std::exchange(load.left_out, 0);
  if (whole) {
    s.kv.left_out = left_out;
    s.kv.reserved_blocks -= left_out / loop_.limits.block_tokens;  // nothing will ever be stored in them
    s.computed += load.blocks * loop_.limits.block_tokens + left_out;
    s.kv.most_left_out = std::max(s.kv.most_left_out, left_out);
    s.prefix.caches = false;
    loop_.stats.store.left_out_tokens += left_out;
  }
  if (s.progress.preemptions == 0) s.prefix.cached = s.stored();
  return whole;
}

// After a step in which the stream ran before all its blocks had arrived. False: some of them were damaged or missing.
bool StoreLoads::end_joined(LiveStream& stream) {
  PrefixLoad& load = stream.load;
  const auto last = static_cast<int64_t>(loop_.kv().layout().layers.size()) - 1;
  if (!load.late && !store_->wait_layer(load.ticket, last, seconds_until(load.deadline))) give_up(load);
  while (!load.late) {
    const LoadProgress progress = store_->poll(load.ticket);
    if (progress.state != TierState::busy) return end(stream, progress);
    if (loop_.now() >= load.deadline) give_up(load);
  }
  return end(stream, {.state = TierState::ready, .blocks = load.arrived});
}

void StoreLoads::cancel(LiveStream& stream) {
  if (stream.lookup.active()) end_lookup(stream);
  if (!stream.load.active()) return;
  if (!stream.load.late) store_->erase(stream.load.ticket);
  stream.sequence.computed = stream.load.from;
  if (stream.load.state >= 0) end_state(stream, false);
  stream.load = {};
  --loads_;
}

void StoreLoads::poll() {
  if (!any()) return;
  for (const auto& stream : lists_.running()) {
    if (stream->lookup.active()) poll_lookup(*stream);
    PrefixLoad& load = stream->load;
    if (!load.active()) continue;
    LoadProgress progress = store_->poll(load.ticket);
    if (progress.state == TierState::busy) {
      if (loop_.now() < load.deadline) continue;
      give_up(load);
      progress = {.state = TierState::ready, .blocks = load.arrived};
    }
    end(*stream, progress);
  }
}

void StoreLoads::finish_all() {
  for (const auto& stream : lists_.running()) {
    while (stream->lookup.active()) {
      store_->wait();
      poll_lookup(*stream);
    }
    if (stream->load.active()) end_joined(*stream);
  }
}

KvStoreStats StoreLoads::stats() const {
  KvStoreStats stats = loop_.stats.store;
  if (!store_) return stats;
  const PrefixStoreStats store = store_->stats();
  stats.open = true;
  stats.io_uring = store.io == "io_uring";
  stats.direct = store.direct;
  stats.connected = store.connected;
  stats.looking_up = lookups_;
  stats.capacity_blocks = std::max<int64_t>(0, store.capacity);
  stats.blocks = store.blocks;
  stats.unread_slots = store.unread_slots;
  stats.read_bytes = store.read_bytes;
  stats.written_bytes = store.written_bytes;
  stats.dropped_blocks = store.dropped_blocks;
  stats.corrupt_blocks = store.corrupt_blocks;
  return stats;
}

}  // namespace millrace
