#include "engine/store_loads.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/store_repair.h"

namespace millrace {

StoreLoads::StoreLoads(LoopContext& loop, StreamLists& lists, BlockLedger& ledger, PrefixCache& cache, double fetch)
    : loop_(loop), lists_(lists), ledger_(ledger), cache_(cache), store_(cache.store()), fetch_(fetch) {
  if (!store_) return;
  joins_early_ = loop_.executor->home().before_attention([this](int64_t layer) {
    for (const StepWork& item : in_forward_)
      if (item.stream->load.active()) store_->wait_layer(item.stream->load.ticket, layer);
  });
}

StoreLoads::~StoreLoads() {
  for (auto& [id, stream] : lists_.table())
    if (stream->load.active()) store_->erase(stream->load.ticket);
}

// Which of the blocks that were found are loaded: all of them, or the most important share, always with the first and
// the last one. Requests with several answers share what is computed of their prompts, and get it whole.
std::vector<size_t> StoreLoads::choose(const LiveStream& stream, std::span<const ChainLink> found) const {
  std::vector<size_t> chosen(found.size());
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  if (fetch_ >= 1 || stream.answers || stream.beams || found.size() < 3) return chosen;
  const auto count =
      std::clamp<size_t>(static_cast<size_t>(std::ceil(fetch_ * static_cast<double>(found.size()))), 2, found.size());
  std::vector<float> importance;
  for (const ChainLink& link : found) {
    const float seen = store_->importance(link);
    importance.push_back(seen > 0 ? seen : 1.0f);  // unknown: an even share
  }
  importance.front() = importance.back() = std::numeric_limits<float>::infinity();
  std::ranges::stable_sort(chosen, std::greater<>(), [&](size_t i) { return importance[i]; });
  chosen.resize(count);
  std::ranges::sort(chosen);
  return chosen;
}

void StoreLoads::start(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (!store_) return;
  const int64_t block_tokens = loop_.limits.block_tokens;
  const auto chain =
      prefix_chain(std::span(s.tokens).first(static_cast<size_t>(s.adoptable())), block_tokens, s.prefix.scope);
  const int64_t first = s.computed / block_tokens;
  const auto behind = std::span(chain).subspan(static_cast<size_t>(first));
  const int64_t found = behind.empty() ? 0 : store_->find(behind);
  stream.repair = find_gap(*store_, behind, first, found);
  if (found == 0) return;
  const auto chosen = choose(stream, behind.first(static_cast<size_t>(found)));
  const int64_t tokens = std::ssize(chosen) * block_tokens, end = s.computed + found * block_tokens;
  const double load = loop_.cost->load_seconds(tokens + store_->loading_blocks() * block_tokens);
  const double compute = loop_.cost->prefill_seconds(end, loop_.limits.batch_tokens) -
                         loop_.cost->prefill_seconds(s.computed, loop_.limits.batch_tokens);
  if (load >= compute) {
    loop_.stats.store.passed_tokens += end - s.computed;
    return;
  }
  if (!ledger_.reserve(stream, s.computed + tokens)) return;
  std::vector<ChainLink> fetched;
  for (size_t i : chosen) fetched.push_back(behind[i]);
  if (std::ssize(fetched) == found) take_importance(stream, fetched);
  const auto into = std::span(s.kv.blocks).subspan(static_cast<size_t>(first)).first(fetched.size());
  stream.load = {.ticket = store_->load(fetched, into),
                 .blocks = std::ssize(fetched),
                 .from = s.computed,
                 .left_out = (found - std::ssize(fetched)) * block_tokens};
  s.phase = StreamPhase::loading;
  ++loads_;
}

// The importance observed before the blocks left memory returns with them to the prefix index.
void StoreLoads::take_importance(LiveStream& stream, std::span<const ChainLink> blocks) const {
  const auto first = static_cast<size_t>(stream.sequence.computed / loop_.limits.block_tokens);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const float seen = store_->importance(blocks[i]);
    if (!(seen > 0)) continue;
    if (stream.importance.size() <= first + i) stream.importance.resize(first + i + 1);
    stream.importance[first + i] = std::max(stream.importance[first + i], seen);
  }
}

// Whether the stream's next chunk takes longer than the rest of its load: then the layers that arrive while the first
// ones are computed delay no other stream. `layers` have arrived.
bool StoreLoads::may_join(const LiveStream& stream, int64_t layers) const {
  const Sequence& s = stream.sequence;
  const int64_t all = std::max<int64_t>(1, static_cast<int64_t>(loop_.kv().layout().layers.size()));
  const int64_t end = stream.load.from + stream.load.blocks * loop_.limits.block_tokens;
  StepShape next;
  next.add(end, std::min(loop_.limits.batch_tokens, s.size() - end), true);
  const double left = loop_.cost->load_seconds(store_->loading_blocks() * loop_.limits.block_tokens) *
                      static_cast<double>(all - layers) / static_cast<double>(all);
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
bool StoreLoads::end(LiveStream& stream, const LoadProgress& progress) {
  Sequence& s = stream.sequence;
  PrefixLoad& load = stream.load;
  const int64_t block_tokens = loop_.limits.block_tokens, tokens = progress.blocks * block_tokens;
  if (progress.seconds > 0) loop_.cost->observe_load(load.blocks * block_tokens, progress.seconds);
  loop_.stats.store.hit_tokens += tokens;
  loop_.stats.store.failed_tokens += load.blocks * block_tokens - tokens;
  store_->erase(load.ticket);
  load.ticket = 0;
  --loads_;
  s.phase = StreamPhase::running;
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
  return progress.blocks == load.blocks;
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

// After a step in which the stream ran before all its blocks had arrived. False: some of them were damaged.
bool StoreLoads::end_joined(LiveStream& stream) {
  LoadProgress progress;
  do {
    store_->wait_layer(stream.load.ticket, static_cast<int64_t>(loop_.kv().layout().layers.size()) - 1);
    progress = store_->poll(stream.load.ticket);
  } while (progress.state == TierState::busy);
  return end(stream, progress);
}

void StoreLoads::cancel(LiveStream& stream) {
  if (!stream.load.active()) return;
  store_->erase(stream.load.ticket);
  stream.sequence.computed = stream.load.from;
  stream.load = {};
  --loads_;
}

void StoreLoads::poll() {
  if (loads_ == 0) return;
  for (const auto& stream : lists_.running()) {
    if (!stream->load.active()) continue;
    const LoadProgress progress = store_->poll(stream->load.ticket);
    if (progress.state != TierState::busy) end(*stream, progress);
  }
}

void StoreLoads::finish_all() {
  for (const auto& stream : lists_.running())
    if (stream->load.active()) end_joined(*stream);
}

KvStoreStats StoreLoads::stats() const {
  KvStoreStats stats = loop_.stats.store;
  if (!store_) return stats;
  const PrefixStoreStats store = store_->stats();
  stats.open = true;
  stats.io_uring = store.io == "io_uring";
  stats.direct = store.direct;
  stats.capacity_blocks = store.capacity;
  stats.blocks = store.blocks;
  stats.unread_slots = store.unread_slots;
  stats.read_bytes = store.read_bytes;
  stats.written_bytes = store.written_bytes;
  stats.dropped_blocks = store.dropped_blocks;
  stats.corrupt_blocks = store.corrupt_blocks;
  return stats;
}

}  // namespace millrace
