#include "engine/stream_closer.h"

#include "engine/answer_group.h"

namespace millrace {

RequestTimings timings(const Sequence& s, int64_t generated, int64_t now_ns) {
  const auto seconds = [](int64_t from, int64_t to) {
    return from > 0 && to > from ? static_cast<double>(to - from) * 1e-9 : 0.0;
  };
  RequestTimings t;
  t.prompt_tokens = static_cast<int64_t>(s.request.prompt.size());
  t.cached_tokens = s.prefix.cached;
  t.left_out_tokens = s.kv.most_left_out;
  t.kept_tokens = s.computed - s.mean_left_out();
  t.evicted_tokens = s.kv.most_stored > 0 ? s.mean_left_out() : 0;
  t.generated_tokens = generated;
  t.queue_seconds = seconds(s.times.submitted, s.times.admitted);
  t.prefill_seconds = seconds(s.times.admitted, s.times.first_token);
  t.decode_seconds = seconds(s.times.first_token, now_ns);
  t.first_token_seconds = seconds(s.times.submitted, s.times.first_token);
  t.preemptions = s.progress.preemptions;
  t.target_passes = s.draft.passes;
  t.drafted_tokens = s.draft.drafted;
  t.accepted_tokens = s.draft.accepted;
  const auto reached = std::ranges::find(s.draft.drafted_at, 0);
  t.drafted_at.assign(s.draft.drafted_at.begin(), reached);
  t.accepted_at.assign(s.draft.accepted_at.begin(), s.draft.accepted_at.begin() + std::ssize(t.drafted_at));
  return t;
}

void StreamCloser::finish(LiveStream& stream, FinishReason reason, TokenEvent event, std::vector<TokenEvent>& events) {
  Sequence& s = stream.sequence;
  event.request = request_of(s.id);
  event.answer = answer_of(s.id);
  event.finish = reason;
  event.last = true;
  if (reason != FinishReason::error) loop_.executor->chooser().flush(stream.ref(), event);
  event.timings = timings(s, s.generated(), loop_.now());
  if (stream.eviction) event.timings.evictions = stream.eviction->decisions();
  if (event.made_ns == 0) event.made_ns = loop_.now();
  loop_.stats.cached_tokens += s.prefix.cached;
  loop_.planner->observe({.kind = ScheduleEvent::Kind::left,
                          .stream = &s,
                          .whole = reason == FinishReason::stop || reason == FinishReason::length});
  const double score = s.generated() > 0 ? stream.logprob_sum / static_cast<double>(s.generated()) : 0;
  if (stream.answers)
    stream.answers->add(std::move(event), score, events);
  else
    events.push_back(std::move(event));
  release(stream);
}

void StreamCloser::release(LiveStream& stream) {
  recorder_.ended(stream.sequence, loop_.now());
  loads_.cancel(stream);
  prefixes_.release(stream);
  swap_.release(stream);
  stream.own.lease.reset();
  lists_.remove(stream.sequence);
  stream.ended = true;
}

}  // namespace millrace
