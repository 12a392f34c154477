#include "engine/swap.h"

#include "engine/placed_documents.h"
#include "engine/token_evictions.h"
#include "schedule/preemption.h"

namespace millrace {

void compute_again(LiveStream& stream, EngineStats& stats) {
  Sequence& s = stream.sequence;
  stats.recomputed_tokens += s.to_recompute();
  s.computed = s.kv.left_out = 0;
  if (stream.eviction) stream.eviction->start_again();
  note_eviction(stream);
  note_border(stream);
}

bool Swap::move_out(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (!tier_ || s.computed == 0) return false;
  if (loop_.kv().states().any() && tickets_ >= loop_.limits.residents()) return false;
  const auto blocks = static_cast<size_t>(loop_.kv().blocks_for(s.stored()));
  const auto ticket = tier_->put(std::span(s.kv.blocks).first(blocks), s.stored());
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
  if (ledger_.reserve(stream, s.computed) && tier_->get(stream.ticket, s.kv.blocks).ok()) {
    s.phase = StreamPhase::loading;
    loop_.stats.swapped_in_tokens += s.stored();
    return;
  }
  release(stream);
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
    if (state == TierState::failed) {  // it keeps its blocks
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
