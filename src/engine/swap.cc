#include "engine/swap.h"

#include <algorithm>

#include "engine/placed_documents.h"
#include "engine/token_evictions.h"
#include "schedule/preemption.h"

namespace millrace {
namespace {

// Of the stream's first `blocks` blocks, those that were not given back.
std::span<const BlockId> held_in_tier(const Sequence& s, int64_t blocks) {
  return std::span(s.kv.blocks)
      .subspan(static_cast<size_t>(s.kv.dead_blocks), static_cast<size_t>(blocks - s.kv.dead_blocks));
}

}  // namespace

void compute_again(LiveStream& stream, EngineStats& stats) {
  Sequence& s = stream.sequence;
  stats.recomputed_tokens += s.to_recompute();
  s.computed = s.kv.left_out = 0;
  s.draft.stored = DraftState::kAll;
  stream.stale.clear();
  if (stream.eviction) stream.eviction->start_again();
  note_eviction(stream);
  note_border(stream);
}

bool Swap::move_out(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (!tier_ || s.computed == 0) return false;
  const KvPool& kv = loop_.kv();
  if ((kv.states().any() || kv.groups() > 1) && tickets_ >= loop_.limits.residents()) return false;
  const auto blocks = held_in_tier(s, kv.blocks_for(s.stored()));
  const auto ticket = tier_->put(blocks, std::min(s.stored(), std::ssize(blocks) * kv.layout().block_tokens));
  if (!ticket.ok()) return false;
  stream.ticket = *ticket;
  ++tickets_;
  s.phase = StreamPhase::swapping_out;
  s.kv.reserved_blocks = 0;
  loop_.stats.swapped_out_tokens += s.stored();
  spare(s, false);
  loop_.observe(ScheduleEvent::Kind::preempted, s);
  lists_.leave(stream);
  return true;
}

void Swap::move_in(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (ledger_.reserve(stream, s.computed) && tier_->get(stream.ticket, held_in_tier(s, std::ssize(s.kv.blocks))).ok()) {
    s.phase = StreamPhase::loading;
    loop_.stats.swapped_in_tokens += s.stored();
    return;
  }
  release(stream);
  if (loop_.kv().gives_back()) ledger_.release(stream);
  compute_again(stream, loop_.stats);
  s.kv.reserved_blocks = loop_.planner->promised_blocks(s, loop_.limits);  // for what had been left out, too
  s.phase = StreamPhase::running;
}

void Swap::poll() {
  if (!tier_) return;
  for (size_t i = 0; i < lists_.leaving().size();) {
    LiveStream& stream = *lists_.leaving()[i];
    Sequence& s = stream.sequence;
    const TierState state = tier_->poll(stream.ticket);
    if (state == TierState::busy) {
      ++i;
      continue;
    }
    ledger_.release_blocks(stream);
    s.phase = StreamPhase::swapped;
    if (state == TierState::failed) {
      release(stream);
      ledger_.release(stream);
      compute_again(stream, loop_.stats);
      s.phase = StreamPhase::waiting;
    }
    lists_.requeue(stream);
  }
  for (const auto& stream : lists_.running()) {
    Sequence& s = stream->sequence;
    if (s.phase != StreamPhase::loading || stream->ticket == 0) continue;
    const TierState state = tier_->poll(stream->ticket);
    if (state == TierState::busy) continue;
    if (state == TierState::failed) {  // it keeps its blocks, unless some were given back
      if (loop_.kv().gives_back()) ledger_.release(*stream);
      compute_again(*stream, loop_.stats);
      s.kv.reserved_blocks = loop_.planner->promised_blocks(s, loop_.limits);
    }
    release(*stream);
    s.phase = StreamPhase::running;
  }
}

void Swap::release(LiveStream& stream) {
  if (stream.ticket) {
    tier_->erase(stream.ticket);
    --tickets_;
  }
  stream.ticket = 0;
}

}  // namespace millrace
