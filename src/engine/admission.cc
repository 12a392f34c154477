#include "engine/admission.h"

#include <algorithm>

#include "schedule/preemption.h"

namespace millrace {

void Admission::mark_answers() {
  // A recurrent state, or a tail with a residual, cannot be cut to the prompt. With copies of states, the first answer
  // takes one before its prompt's last token; else answers compute their prompts.
  const bool shares = loop_.kv().layout().prefixes_shared(), copies = loop_.kv().states().copies() > 0;
  if (!lists_.answers_wait() || !(shares || copies)) return;
  for (const auto& stream : lists_.waiting()) {
    Sequence& s = stream->sequence;
    if (s.parent == 0 || s.phase != StreamPhase::waiting || !(shares || s.prefix.caches)) continue;
    const LiveStream* first = lists_.find(s.parent);
    const bool alive =
        first && first->sequence.phase != StreamPhase::swapped && first->sequence.phase != StreamPhase::swapping_out;
    const bool stored =
        alive && first->sequence.phase == StreamPhase::running && first->sequence.computed >= s.prompt_tokens;
    s.held_back = alive && !stored && s.generated() == 0;
    // Where every layer has a window, blocks that both hold may be given back by then.
    const bool forks = shares || (first && first->states.fork_slot >= 0);
    const bool counts = forks && stored && s.generated() == 0 && loop_.limits.most_held == 0 &&
                        ledger_.may_share(first->sequence, s.prompt_tokens - 1);
    s.kv.shared_blocks = counts ? (s.prompt_tokens - 1) / loop_.limits.block_tokens : 0;
  }
}

// The stream takes over the first answer's full blocks before the last prompt token, and a copy of the block with that
// token. The last prompt token runs again: its logits sample the answer's first token.
bool Admission::share_prompt(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (s.parent == 0 || s.generated() > 0) return false;
  LiveStream* first = lists_.find(s.parent);
  if (!first || first->sequence.phase != StreamPhase::running || first->sequence.computed < s.prompt_tokens)
    return false;
  const StateId state = first->states.fork_slot;
  if (state < 0 && !loop_.kv().layout().prefixes_shared()) return false;
  ledger_.share(first->sequence, stream, s.prompt_tokens - 1, state);
  if (state >= 0 && s.computed > 0) states_.forked(*first, stream);
  if (state >= 0 && s.computed == 0) {  // no block for the copy of the partly filled one
    const int64_t promised = s.kv.reserved_blocks;
    ledger_.release(stream);
    s.kv.reserved_blocks = promised;
  }
  return s.computed > 0;
}

LiveStream* Admission::admit(RequestId id) {
  LiveStream* stream = lists_.find(id);
  if (!stream) return nullptr;
  Sequence& s = stream->sequence;
  if (s.phase != StreamPhase::waiting && s.phase != StreamPhase::swapped) return nullptr;
  s.kv.reserved_blocks = loop_.planner->promised_blocks(s, loop_.limits);
  s.tokens.reserve(static_cast<size_t>(s.max_total));  // a step that only decodes allocates no memory
  ledger_.prepare(*stream, loop_.limits.most_held > 0 ? s.max_total : s.kv_demand(s.max_total), s.max_total);
  if (stream->eviction) stream->eviction->reserve(loop_.executor->limits().drafts, loop_.executor->limits().gate_dims);
  const bool first_time = s.times.admitted == 0;
  if (first_time) s.times.admitted = loop_.now();
  if (s.phase == StreamPhase::swapped) {
    swap_.move_in(*stream);
  } else {
    s.phase = StreamPhase::running;
    if (!share_prompt(*stream)) prefixes_.attach(*stream);
    if (first_time) s.prefix.cached = s.computed;
  }
  lists_.start(*stream);
  loop_.observe(ScheduleEvent::Kind::admitted, s);
  return stream;
}

bool Admission::preempt(const PlannedPreemption& preemption) {
  LiveStream* stream = lists_.find(preemption.request);
  if (!stream || !can_be_preempted(stream->sequence)) return false;
  Sequence& s = stream->sequence;
  prefixes_.stop_sharing(*stream);
  stream->own.lease.reset();
  stream->own.rows.reset();
  ++s.progress.preemptions;
  ++loop_.stats.preemptions;
  loads_.cancel(*stream);
  if (preemption.swap && swap_.move_out(*stream)) return true;
  prefixes_.release(*stream);
  spare(s, true);
  loop_.planner->observe({.kind = ScheduleEvent::Kind::preempted, .stream = &s, .lost = s.to_recompute()});
  compute_again(*stream, loop_.stats);
  s.phase = StreamPhase::waiting;
  lists_.requeue(*stream);
  return true;
}

}  // namespace millrace
