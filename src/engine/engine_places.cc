// The part of EngineCore that moves streams between the queue, the pool and the tier, and keeps count of who holds
// which blocks. The planner decided; what happens here is what its plan says.
#include <fmt/format.h>

#include <algorithm>

#include "engine/beam_group.h"
#include "engine/engine_core.h"
#include "schedule/preemption.h"

namespace millrace {
void EngineCore::hold(BlockId block) {
  if (holders_[static_cast<size_t>(block)]++ == 0) ++held_blocks_;
}

// Gives the stream's blocks back to the pool.
void EngineCore::let_go(LiveStream& stream) {
  Sequence& s = stream.sequence;
  for (BlockId block : s.kv.blocks) {
    if (--holders_[static_cast<size_t>(block)] == 0) --held_blocks_;
    kv_->release(block);
  }
  kv_->close(stream.range);
  s.kv.blocks.clear();
  s.kv.shared_blocks = 0;
  s.kv.reserved_blocks = 0;
}

// The same, and what is worth keeping stays in the prefix index.
void EngineCore::release(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (s.phase == StreamPhase::running) store_prefix(stream);
  let_go(stream);
}

// A stream that is over: out of every account.
void EngineCore::forget(LiveStream& stream) {
  const Sequence& s = stream.sequence;
  if (recorder_) recorder_->ended(s, clock_->now_ns());
  abandon_load(stream);
  release(stream);
  if (stream.ticket) tier_->erase(stream.ticket);
  stream.ticket = 0;
  answers_waiting_ -= s.parent != 0 && (s.phase == StreamPhase::waiting || s.phase == StreamPhase::swapped);
  limited_ -= s.times.time_limit > 0;
  streams_.erase(s.id);
}

bool EngineCore::reserve_blocks(LiveStream& stream, int64_t tokens) {
  Sequence& s = stream.sequence;
  while (static_cast<int64_t>(s.kv.blocks.size()) < kv_->blocks_for(tokens - s.kv.left_out)) {
    auto block = kv_->allocate(stream.range);
    if (!block.ok() && prefix_ && prefix_->evict(1) == 1) block = kv_->allocate(stream.range);
    if (!block.ok()) return false;
    hold(*block);
    s.kv.blocks.push_back(*block);
  }
  return true;
}

// Further answers of a request wait until the first one's prompt is stored, to share its blocks.
void EngineCore::mark_answers() {
  if (answers_waiting_ == 0) return;
  for (auto& stream : waiting_) {
    Sequence& s = stream->sequence;
    if (s.parent == 0 || s.phase != StreamPhase::waiting) continue;
    const LiveStream* first = find(s.parent);
    const bool alive =
        first && first->sequence.phase != StreamPhase::swapped && first->sequence.phase != StreamPhase::swapping_out;
    const bool stored =
        alive && first->sequence.phase == StreamPhase::running && first->sequence.computed >= s.prompt_tokens;
    s.held_back = alive && !stored && s.generated() == 0;
    s.kv.shared_blocks = stored && s.generated() == 0 ? (s.prompt_tokens - 1) / limits_.block_tokens : 0;
  }
}

// The stream's prompt is that of the first answer: it takes over the full blocks before the last prompt token, and a
// copy of the block that this one lies in. The last prompt token runs again: its logits are the first answer's.
bool EngineCore::share_prompt(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (s.parent == 0 || s.generated() > 0) return false;
  LiveStream* first = find(s.parent);
  if (!first || first->sequence.phase != StreamPhase::running || first->sequence.computed < s.prompt_tokens)
    return false;
  share_blocks(first->sequence, stream, s.prompt_tokens - 1);
  return s.computed > 0;
}

// A stream without blocks takes over the keys and values of the first `tokens` tokens, which are the owner's too: full
// blocks shared, the partly filled one copied. Where there is no block for the copy, its tokens are left to be
// computed.
void EngineCore::share_blocks(Sequence& owner, LiveStream& stream, int64_t tokens) {
  Sequence& s = stream.sequence;
  const int64_t full = tokens / limits_.block_tokens;
  for (int64_t i = 0; i < full; ++i) {
    const BlockId block = owner.kv.blocks[static_cast<size_t>(i)];
    kv_->share(block);
    hold(block);
    s.kv.blocks.push_back(block);
  }
  owner.kv.shared_blocks = std::max(owner.kv.shared_blocks, full);
  s.kv.shared_blocks = full;
  s.computed = full * limits_.block_tokens;
  if (s.computed < tokens && reserve_blocks(stream, tokens)) {
    kv_->copy(owner.kv.blocks[static_cast<size_t>(full)], s.kv.blocks.back());
    s.computed = tokens;
  }
}

int64_t EngineCore::cached_tokens(const Request& request) {
  if (!prefix_ || !request.cache_prompt || request.prompt.empty()) return 0;
  const uint64_t scope = scopes_.of(request.tenant, request.prefix_group);
  return prefix_->known_blocks(std::span(request.prompt).first(request.prompt.size() - 1), scope) *
         limits_.block_tokens;
}

void EngineCore::load_swapped(LiveStream& stream) {
  Sequence& s = stream.sequence;
  const bool begun = reserve_blocks(stream, s.computed) && tier_->get(stream.ticket, s.kv.blocks).ok();
  if (begun) {
    s.phase = StreamPhase::loading;
    stats_.swapped_in_tokens += s.stored();
    return;
  }
  tier_->erase(stream.ticket);
  stream.ticket = 0;
  compute_again(s);
  s.kv.reserved_blocks = planner_->promised_blocks(s, limits_);  // for what had been left out, too
  s.phase = StreamPhase::running;
}

// Nothing of the stream is stored any more, and what was left out of its attention will be in it.
void EngineCore::compute_again(Sequence& s) {
  stats_.recomputed_tokens += s.stored();
  s.computed = s.kv.left_out = 0;
}

// From the queue to the running streams. False: no such stream waits.
bool EngineCore::admit(RequestId id) {
  LiveStream* stream = find(id);
  if (!stream) return false;
  Sequence& s = stream->sequence;
  if (s.phase != StreamPhase::waiting && s.phase != StreamPhase::swapped) return false;
  auto at = std::ranges::find(waiting_, stream, &StreamPtr::get);
  s.kv.reserved_blocks = planner_->promised_blocks(s, limits_);
  s.tokens.reserve(static_cast<size_t>(s.max_total));  // no step that only decodes allocates memory
  s.kv.blocks.reserve(static_cast<size_t>(limits_.blocks_for(s.max_total)));
  const bool first_time = s.times.admitted == 0;
  if (first_time) s.times.admitted = clock_->now_ns();
  answers_waiting_ -= s.parent != 0;
  if (s.phase == StreamPhase::swapped) {
    load_swapped(*stream);
  } else {
    s.phase = StreamPhase::running;
    if (!share_prompt(*stream)) {
      s.kv.shared_blocks = 0;
      if (!wait_for_prefix(*stream)) find_prefix(*stream);
    }
    if (first_time) s.prefix.cached = s.computed;
  }
  running_.push_back(std::move(*at));
  waiting_.erase(at);
  tell(ScheduleEvent::Kind::admitted, s);
  if (stream->beams) admit_beams(*stream->beams);
  return true;
}

// Into the queue, by arrival: who comes back stands before those that came later.
void EngineCore::enqueue(StreamPtr stream) {
  answers_waiting_ += stream->sequence.parent != 0;
  auto behind = waiting_.end();
  while (behind != waiting_.begin() && (*std::prev(behind))->sequence.arrival > stream->sequence.arrival) --behind;
  waiting_.insert(behind, std::move(stream));
}

// False: the stream cannot be preempted now.
bool EngineCore::preempt(const PlannedPreemption& preemption) {
  LiveStream* stream = find(preemption.request);
  if (!stream || !can_be_preempted(stream->sequence)) return false;
  Sequence& s = stream->sequence;
  auto at = std::ranges::find(running_, stream, &StreamPtr::get);
  StreamPtr owned = std::move(*at);
  running_.erase(at);
  s.prefix.donor = 0;
  s.held_back = false;
  if (std::ranges::any_of(running_, [&](const StreamPtr& other) { return other->sequence.prefix.donor == s.id; }))
    store_prefix(*stream);
  ++s.progress.preemptions;
  ++stats_.preemptions;
  abandon_load(*stream);
  if (preemption.swap && tier_ && s.computed > 0) {
    if (auto ticket =
            tier_->put(std::span(s.kv.blocks).first(static_cast<size_t>(kv_->blocks_for(s.stored()))), s.stored());
        ticket.ok()) {
      stream->ticket = *ticket;
      s.phase = StreamPhase::swapping_out;
      s.kv.reserved_blocks = 0;
      stats_.swapped_out_tokens += s.stored();
      spare(s, false);
      tell(ScheduleEvent::Kind::preempted, s);
      leaving_.push_back(std::move(owned));
      return true;
    }
  }
  release(*stream);
  spare(s, true);
  planner_->observe({.kind = ScheduleEvent::Kind::preempted, .stream = &s, .lost = s.stored()});
  compute_again(s);
  s.phase = StreamPhase::waiting;
  enqueue(std::move(owned));
  return true;
}

// Moves that have come to their end.
void EngineCore::poll_tier() {
  if (!tier_) return;
  for (size_t i = 0; i < leaving_.size();) {
    LiveStream& stream = *leaving_[i];
    Sequence& s = stream.sequence;
    const TierState state = tier_->poll(stream.ticket);
    if (state == TierState::busy) {
      ++i;
      continue;
    }
    let_go(stream);
    s.phase = StreamPhase::swapped;
    if (state == TierState::failed) {
      tier_->erase(stream.ticket);
      stream.ticket = 0;
      compute_again(s);
      s.phase = StreamPhase::waiting;
    }
    enqueue(std::move(leaving_[i]));
    leaving_.erase(leaving_.begin() + static_cast<ptrdiff_t>(i));
  }
  for (auto& stream : running_) {
    Sequence& s = stream->sequence;
    if (s.phase != StreamPhase::loading || stream->ticket == 0) continue;
    const TierState state = tier_->poll(stream->ticket);
    if (state == TierState::busy) continue;
    if (state == TierState::failed) {  // the blocks stay
      compute_again(s);
      s.kv.reserved_blocks = planner_->promised_blocks(s, limits_);
    }
    tier_->erase(stream->ticket);
    stream->ticket = 0;
    s.phase = StreamPhase::running;
  }
}

Result<void> EngineCore::check_blocks() const {
  MILLRACE_TRY_VOID(kv_->check());
  std::vector<int32_t> held(static_cast<size_t>(kv_->ids())), private_holders(held.size());
  for (const auto& [id, stream] : streams_) {
    const Sequence& s = stream->sequence;
    for (size_t i = 0; i < s.kv.blocks.size(); ++i) {
      ++held[static_cast<size_t>(s.kv.blocks[i])];
      private_holders[static_cast<size_t>(s.kv.blocks[i])] += static_cast<int64_t>(i) >= s.kv.shared_blocks;
    }
    if (s.kv.left_out > 0 && s.prefix.caches)
      return Error::internal(
          fmt::format("stream {}: went without {} tokens and may leave prefixes", id, s.kv.left_out));
    if (kv_->blocks_for(s.stored()) > static_cast<int64_t>(s.kv.blocks.size()) && s.phase != StreamPhase::swapped)
      return Error::internal(
          fmt::format("stream {}: {} tokens are stored in {} blocks", id, s.computed, s.kv.blocks.size()));
  }
  int64_t in_use = 0, counted = 0, expected = prefix_ ? prefix_->size() : 0, held_blocks = 0;
  for (BlockId block = 0; block < kv_->ids(); ++block) {
    const auto i = static_cast<size_t>(block);
    in_use += kv_->references(block) > 0;
    counted += kv_->references(block);
    expected += held[i];
    held_blocks += held[i] > 0;
    if (held[i] != holders_[i])
      return Error::internal(fmt::format("KV block {}: {} streams counted, {} hold it", block, holders_[i], held[i]));
    if (private_holders[i] > 1 || (private_holders[i] == 1 && held[i] > 1))
      return Error::internal(fmt::format("KV block {}: a stream's own block is held by {}", block, held[i]));
  }
  if (in_use + kv_->free_blocks() != kv_->total_blocks()) {
    return Error::internal(
        fmt::format("KV blocks: {} held + {} free != {}", in_use, kv_->free_blocks(), kv_->total_blocks()));
  }
  if (counted != expected)
    return Error::internal(fmt::format("KV blocks: {} references counted, {} held", counted, expected));
  if (held_blocks != held_blocks_)
    return Error::internal(fmt::format("KV blocks: {} held by streams, {} counted", held_blocks, held_blocks_));
  return {};
}

}  // namespace millrace
