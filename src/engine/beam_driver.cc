#include "engine/beam_driver.h"

#include <algorithm>

namespace millrace {

void BeamDriver::admit(BeamGroup& group) {
  for (StreamPtr& stream : group.parked) {
    Sequence& s = stream->sequence;
    s.times.admitted = group.slots.front()->sequence.times.admitted;
    s.times.time_limit = group.slots.front()->sequence.times.time_limit;
    stream->beams = group.slots.front()->beams;
    s.phase = StreamPhase::running;
    s.tokens.reserve(static_cast<size_t>(s.max_total));
    ledger_.prepare(*stream, s.max_total, s.max_total);
    lists_.add_running(std::move(stream));
    loop_.observe(ScheduleEvent::Kind::queued, s);
    loop_.observe(ScheduleEvent::Kind::admitted, s);
  }
  group.parked.clear();
  promise_blocks(group);
}

bool BeamDriver::commit(LiveStream& stream, int64_t row, std::vector<TokenEvent>& events) {
  BeamGroup& group = *stream.beams;
  if (stream.sequence.size() >= stream.sequence.max_total) {  // max_tokens is 0
    finish(group, FinishReason::length, events);
    return false;
  }
  const auto rank = static_cast<size_t>(std::ranges::find(group.live, &stream) - group.live.begin());
  loop_.executor->chooser().likeliest(row, group.search.candidates_wanted(), group.candidates[rank]);
  if (++group.known < static_cast<int64_t>(group.live.size())) return true;
  group.known = 0;
  const auto next = group.search.advance(group.candidates);
  Sequence& first = group.slots.front()->sequence;
  if (first.times.first_token == 0) first.times.first_token = loop_.now();
  loop_.stats.generated_tokens += static_cast<int64_t>(next.size());
  if (next.empty() || stream.sequence.size() + 1 >= stream.sequence.max_total) {
    finish(group, FinishReason::length, events);
    return false;
  }
  advance(group, next);
  return true;
}

// A beam's first successor continues in its stream; further ones move into streams whose beam has none, or that are
// empty.
void BeamDriver::advance(BeamGroup& group, const std::vector<BeamSearch::Next>& next) {
  std::vector<LiveStream*> hosts(next.size(), nullptr), spare;
  for (size_t i = 0; i < next.size(); ++i) {
    LiveStream* parent = group.live[static_cast<size_t>(next[i].from)];
    if (std::ranges::find(hosts, parent) == hosts.end()) hosts[i] = parent;
  }
  for (LiveStream* slot : group.slots) {
    if (std::ranges::find(hosts, slot) != hosts.end()) continue;
    ledger_.release(*slot);
    empty_slot(slot->sequence);
    spare.push_back(slot);
  }
  size_t used = 0;
  for (size_t i = 0; i < next.size(); ++i) {
    if (hosts[i]) continue;
    hosts[i] = spare[used++];
    fork(*group.live[static_cast<size_t>(next[i].from)], *hosts[i]);
  }
  for (size_t i = 0; i < next.size(); ++i) hosts[i]->sequence.tokens.push_back(next[i].token);
  group.live = std::move(hosts);
  group.candidates.resize(group.live.size());
  promise_blocks(group);
}

void BeamDriver::fork(LiveStream& parent, LiveStream& child) {
  Sequence &from = parent.sequence, &to = child.sequence;
  to.tokens = from.tokens;
  to.prompt_tokens = from.prompt_tokens;
  ledger_.share(from, child, from.computed);
}

// width x longest in all, whatever is shared: blocks that beams save by sharing now they may need when they part, so no
// other stream is admitted on them. The first slot is promised the difference.
void BeamDriver::promise_blocks(BeamGroup& group) {
  std::vector<BlockId> held;
  for (LiveStream* slot : group.slots) {
    KvState& kv = slot->sequence.kv;
    kv.reserved_blocks = loop_.limits.blocks_for(loop_.limits.held(slot->sequence.max_total));
    held.insert(held.end(), kv.blocks.begin() + kv.dead_blocks, kv.blocks.end());
  }
  std::ranges::sort(held);
  group.slots.front()->sequence.kv.reserved_blocks += std::ranges::ssize(std::ranges::unique(held));
}

void BeamDriver::finish(BeamGroup& group, FinishReason reason, std::vector<TokenEvent>& events) {
  if (group.finished) return;
  group.finished = true;
  auto answers = group.search.best(group.wanted);
  answers.resize(static_cast<size_t>(group.wanted));  // a search that ended early has fewer: each answer gets its end
  for (size_t i = 0; i < answers.size(); ++i)
    emit(group, static_cast<int64_t>(i), answers[i], reason, i + 1 == answers.size(), events);
  release(group, reason);
}

void BeamDriver::fail(BeamGroup& group, const Error& error, std::vector<TokenEvent>& events) {
  if (group.finished) return;
  group.finished = true;
  const Sequence& first = group.slots.front()->sequence;
  for (int64_t answer = 0; answer < group.wanted; ++answer) {
    TokenEvent event;
    event.request = request_of(first.id);
    event.answer = answer;
    event.made_ns = loop_.now();
    event.error = error;
    event.finish = FinishReason::error;
    event.last = answer + 1 == group.wanted;
    event.timings = timings(first, 0, loop_.now());
    events.push_back(std::move(event));
  }
  release(group, FinishReason::error);
}

void BeamDriver::release(BeamGroup& group, FinishReason reason) {
  const LiveStream& first = *group.slots.front();
  loop_.stats.cached_tokens += first.sequence.prefix.cached;
  for (LiveStream* slot : group.slots) {
    if (!lists_.find(slot->sequence.id)) continue;  // parked
    const bool whole = slot == &first && (reason == FinishReason::stop || reason == FinishReason::length);
    loop_.planner->observe({.kind = ScheduleEvent::Kind::left, .stream = &slot->sequence, .whole = whole});
    closer_.release(*slot);
  }
}

// One event for each token of the answer, or one in all where it has none.
void BeamDriver::emit(BeamGroup& group, int64_t answer, const BeamAnswer& beam, FinishReason reason, bool last,
                      std::vector<TokenEvent>& events) {
  const Sequence& first = group.slots.front()->sequence;
  LiveStream& slot = *group.slots[static_cast<size_t>(answer)];  // has its own detokenizer, unused so far
  const size_t count = std::max<size_t>(1, beam.tokens.size());
  for (size_t i = 0; i < count; ++i) {
    TokenEvent event;
    event.request = request_of(first.id);
    event.answer = answer;
    event.made_ns = loop_.now();
    if (i < beam.tokens.size()) {
      event.token = beam.tokens[i].chosen.token;
      loop_.executor->chooser().write(slot.ref(), event);
      if (first.request.sampling.logprobs >= 0) {
        event.logprob = beam.tokens[i].chosen;
        event.top_logprobs = beam.tokens[i].top;
      }
    }
    if (i + 1 == count) {
      loop_.executor->chooser().flush(slot.ref(), event);
      event.finish = beam.ended ? FinishReason::stop : reason;
      event.score = beam.score;
      event.last = last;
      event.timings = timings(first, static_cast<int64_t>(beam.tokens.size()), loop_.now());
    }
    events.push_back(std::move(event));
  }
}

}  // namespace millrace
