// The part of EngineCore that deals with the prefix store: blocks that leave the prefix index go there, and a prompt
// that goes on past what the pool holds gets them back. The stream stays in phase `loading` until they are there, and
// the others go on; when what is left to load takes less time than its next chunk, it joins them, and each layer's
// attention waits for that layer. What does not come back is computed.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/engine_core.h"

namespace millrace {

Result<void> EngineCore::open_store(const EngineOptions& options) {
  if (options.kv_ssd.empty()) return {};
  MILLRACE_TRY(store_, executor_->make_store(options));
  store_fetch_ = options.kv_ssd_fetch;
  joins_early_ = executor_->before_attention([this](int64_t layer) {
    for (const StepWork& item : work_)
      if (item.stream->store_ticket) store_->wait_layer(item.stream->store_ticket, layer);
  });
  return {};
}

std::function<void(const ChainLink&, BlockId)> EngineCore::store_hook() {
  if (!store_) return {};
  return [this](const ChainLink& link, BlockId block) {
    if (closing_ && closing_skips_-- > 0) return;
    store_->put(link, block, closing_);
  };
}

EngineCore::~EngineCore() {
  for (auto& [id, stream] : streams_)
    if (stream->store_ticket) store_->erase(stream->store_ticket);
  if (!store_ || !prefix_) return;
  closing_ = true;
  closing_skips_ = prefix_->size() - store_->stats().capacity;
  prefix_.reset();
}

// Which of the blocks that were found are fetched: all of them, or the most important share, always with the first one
// and the last. Requests with several answers share what is computed of their prompts, and get it whole.
std::vector<size_t> EngineCore::choose_stored(const LiveStream& stream, std::span<const ChainLink> found) const {
  std::vector<size_t> chosen(found.size());
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  if (store_fetch_ >= 1 || stream.answers || stream.beams || found.size() < 3) return chosen;
  const auto count = std::clamp<size_t>(
      static_cast<size_t>(std::ceil(store_fetch_ * static_cast<double>(found.size()))), 2, found.size());
  std::vector<float> importance;
  for (const ChainLink& link : found) {
    const float seen = store_->importance(link);
    importance.push_back(seen > 0 ? seen : 1.0f);  // not known: an even share
  }
  importance.front() = importance.back() = std::numeric_limits<float>::infinity();
  std::ranges::stable_sort(chosen, std::greater<>(), [&](size_t i) { return importance[i]; });
  chosen.resize(count);
  std::ranges::sort(chosen);
  return chosen;
}

// Takes what the store has of the stream's tokens behind its `computed` ones, where that is faster than computing them.
void EngineCore::load_stored(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (!store_) return;
  const auto chain =
      prefix_chain(std::span(s.tokens).first(static_cast<size_t>(s.size() - 1)), limits_.block_tokens, s.prefix.scope);
  const int64_t first = s.computed / limits_.block_tokens;
  const auto behind = std::span(chain).subspan(static_cast<size_t>(first));
  const int64_t found = behind.empty() ? 0 : store_->find(behind);
  mend_gap(stream, behind, first, found);
  if (found == 0) return;
  const auto chosen = choose_stored(stream, behind.first(static_cast<size_t>(found)));
  const int64_t tokens = std::ssize(chosen) * limits_.block_tokens, end = s.computed + found * limits_.block_tokens;
  const double load = cost_->load_seconds(tokens + store_->loading_blocks() * limits_.block_tokens);
  const double compute =
      cost_->prefill_seconds(end, limits_.batch_tokens) - cost_->prefill_seconds(s.computed, limits_.batch_tokens);
  if (load >= compute) {
    stats_.store.passed_tokens += end - s.computed;
    return;
  }
  if (!reserve_blocks(stream, s.computed + tokens)) return;
  std::vector<ChainLink> fetched;
  for (size_t i : chosen) fetched.push_back(behind[i]);
  if (std::ssize(fetched) == found) take_importance(stream, fetched);
  stream.store_ticket =
      store_->load(fetched, std::span(s.kv.blocks).subspan(static_cast<size_t>(first)).first(fetched.size()));
  stream.store_blocks = std::ssize(fetched);
  stream.store_from = s.computed;
  stream.store_left_out = (found - std::ssize(fetched)) * limits_.block_tokens;
  s.phase = StreamPhase::loading;
  ++loads_;
}

// Behind the first block that is missing there may be others: what is missing goes back as soon as it is computed, and
// the others are looked at then.
void EngineCore::mend_gap(LiveStream& stream, std::span<const ChainLink> behind, int64_t first, int64_t found) {
  int64_t last = std::ssize(behind);
  while (last > found && !store_->holds(behind[static_cast<size_t>(last - 1)])) --last;
  stream.mend_from = first + found;
  stream.mend_end = first + last;
}

// Hands the store what it had lost of the stream's prompt and is computed now, in the same pass: who asks next finds
// it.
void EngineCore::mend_store(LiveStream& stream) {
  const Sequence& s = stream.sequence;
  const int64_t end = std::min(stream.mend_end, s.computed / limits_.block_tokens);
  if (stream.mend_from >= end || !s.prefix.caches || s.kv.left_out > 0 || !store_->has_room()) return;
  const auto chain = prefix_chain(std::span(s.tokens).first(static_cast<size_t>(end * limits_.block_tokens)),
                                  limits_.block_tokens, s.prefix.scope);
  for (; stream.mend_from < end && store_->has_room(); ++stream.mend_from) {
    ChainLink link = chain[static_cast<size_t>(stream.mend_from)];
    if (static_cast<size_t>(stream.mend_from) < stream.importance.size())
      link.importance = stream.importance[static_cast<size_t>(stream.mend_from)];
    store_->put(link, s.kv.blocks[static_cast<size_t>(stream.mend_from)], false);
  }
}

// What was seen of the blocks before they left memory goes with them, back into the prefix index.
void EngineCore::take_importance(LiveStream& stream, std::span<const ChainLink> blocks) const {
  const auto first = static_cast<size_t>(stream.sequence.computed / limits_.block_tokens);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const float seen = store_->importance(blocks[i]);
    if (!(seen > 0)) continue;
    if (stream.importance.size() <= first + i) stream.importance.resize(first + i + 1);
    stream.importance[first + i] = std::max(stream.importance[first + i], seen);
  }
}

// Whether the stream's next chunk takes longer than what is left of its load: then the layers that come in while the
// first ones are computed hold nobody up. `layers` are there.
bool EngineCore::may_join(const LiveStream& stream, int64_t layers) const {
  const Sequence& s = stream.sequence;
  const int64_t all = std::max<int64_t>(1, static_cast<int64_t>(kv_->layout().layers.size()));
  const int64_t end = stream.store_from + stream.store_blocks * limits_.block_tokens;
  StepShape next;
  next.add(end, std::min(limits_.batch_tokens, s.size() - end), true);
  const double left = cost_->load_seconds(store_->loading_blocks() * limits_.block_tokens) *
                      static_cast<double>(all - layers) / static_cast<double>(all);
  return left <= cost_->step_seconds(next);
}

// For one step those that may run as if their blocks were there; each layer's attention waits for them (wait_layer),
// and a chunk that ran over damaged ones is not committed. Outside of the step `computed` counts only what is there.
void EngineCore::join_loads() {
  if (loads_ == 0 || !joins_early_) return;
  for (auto& stream : running_) {
    Sequence& s = stream->sequence;
    if (stream->store_ticket == 0 || stream->store_left_out > 0 ||
        !may_join(*stream, store_->poll(stream->store_ticket).layers))
      continue;
    s.computed = stream->store_from + stream->store_blocks * limits_.block_tokens;
    s.phase = StreamPhase::running;
  }
}

// After the step: who joined and had no chunk in it.
void EngineCore::part_loads() {
  if (loads_ == 0) return;
  for (auto& stream : running_) {
    if (stream->store_ticket == 0) continue;
    stream->sequence.computed = stream->store_from;
    stream->sequence.phase = StreamPhase::loading;
  }
}

// The load is ready, in whole or in part. What came back is shared at once with the prompts that come next. False: some
// of it did not.
bool EngineCore::end_load(LiveStream& stream, const LoadProgress& progress) {
  Sequence& s = stream.sequence;
  const int64_t tokens = progress.blocks * limits_.block_tokens;
  if (progress.seconds > 0) cost_->observe_load(stream.store_blocks * limits_.block_tokens, progress.seconds);
  stats_.store.hit_tokens += tokens;
  stats_.store.failed_tokens += stream.store_blocks * limits_.block_tokens - tokens;
  store_->erase(stream.store_ticket);
  stream.store_ticket = 0;
  --loads_;
  s.phase = StreamPhase::running;
  if (progress.blocks < stream.store_blocks && stream.store_left_out == 0) {
    stream.mend_end = std::max(stream.mend_end, stream.store_from / limits_.block_tokens + stream.store_blocks);
    stream.mend_from = stream.store_from / limits_.block_tokens + progress.blocks;
  }
  if (stream.store_left_out > 0) return end_partial_load(stream, progress);
  s.computed = stream.store_from + tokens;
  if (s.progress.preemptions == 0) s.prefix.cached = s.computed;
  if (tokens > 0) {
    store_prefix(stream);
    s.kv.shared_blocks = s.computed / limits_.block_tokens;
  }
  return progress.blocks == stream.store_blocks;
}

// A load that left blocks out: all of it counts, or nothing. From now on the stream's keys and values are no prompt's,
// and are nobody else's.
//
//   tokens  | from the pool | stored: A  B  C  D  E  F | computed ...        slots  | from the pool | A C F | computed
//   ...
bool EngineCore::end_partial_load(LiveStream& stream, const LoadProgress& progress) {
  Sequence& s = stream.sequence;
  s.computed = stream.store_from;
  const bool whole = progress.blocks == stream.store_blocks;
  if (whole) {
    s.kv.left_out = std::exchange(stream.store_left_out, 0);
    s.kv.reserved_blocks -= s.kv.left_out / limits_.block_tokens;  // nothing will ever lie in them
    s.computed += stream.store_blocks * limits_.block_tokens + s.kv.left_out;
    s.kv.most_left_out = std::max(s.kv.most_left_out, s.kv.left_out);
    s.prefix.caches = false;
    stats_.store.left_out_tokens += s.kv.left_out;
  }
  stream.store_left_out = 0;
  if (s.progress.preemptions == 0) s.prefix.cached = s.stored();
  return whole;
}

// After a step in which a stream ran that had joined early. False: over bytes that were damaged.
bool EngineCore::end_joined(LiveStream& stream) {
  LoadProgress progress;
  do {
    store_->wait_layer(stream.store_ticket, static_cast<int64_t>(kv_->layout().layers.size()) - 1);
    progress = store_->poll(stream.store_ticket);
  } while (progress.state == TierState::busy);
  return end_load(stream, progress);
}

// The stream gives way or is over while its blocks are on their way.
void EngineCore::abandon_load(LiveStream& stream) {
  if (stream.store_ticket == 0) return;
  store_->erase(stream.store_ticket);
  stream.store_ticket = 0;
  stream.store_left_out = 0;
  --loads_;
  stream.sequence.computed = stream.store_from;
}

void EngineCore::poll_store() {
  if (loads_ == 0) return;
  for (auto& stream : running_) {
    if (stream->store_ticket == 0) continue;
    const LoadProgress progress = store_->poll(stream->store_ticket);
    if (progress.state != TierState::busy) end_load(*stream, progress);
  }
}

// Waits for every load.
void EngineCore::finish_loads() {
  for (auto& stream : running_)
    if (stream->store_ticket) end_joined(*stream);
}

KvStoreStats EngineCore::store_stats() const {
  KvStoreStats stats = stats_.store;
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
