// The part of EngineCore that runs beam searches: it hands the executor's log-probabilities to BeamSearch and moves
// blocks between streams as beams fork and end. A fork shares the full blocks and copies the partly filled one.
//
// A search is admitted whole, on width x longest blocks, and never gives way, so a fork never lacks a block.
#include <algorithm>

#include "engine/beam_group.h"
#include "engine/engine_core.h"

namespace millrace {
namespace {

// An empty slot: a stream without tokens, of which the planner has nothing to run.
void empty(Sequence& s) {
  s.tokens.clear();
  s.prompt_tokens = s.computed = 0;
}

}  // namespace

Result<void> EngineCore::add_beams(RequestId id, Request request) {
  BeamOptions options{request.beams, request.length_penalty, request.early_stopping, 0, request.min_tokens, {}};
  options.max_tokens = longest(request) - static_cast<int64_t>(request.prompt.size());
  if (!request.ignore_eos) options.end_tokens = executor_->end_tokens();
  auto group = std::make_shared<BeamGroup>(
      BeamGroup{BeamSearch(std::move(options), request.sampling.logprobs), request.n, {}, {}, {}, {}, 0, false});
  const int64_t width = request.beams;
  std::vector<StreamPtr> streams;
  for (int64_t slot = 0; slot < width; ++slot) {
    MILLRACE_TRY(auto stream, make_stream(answer_stream(id, slot), request));
    Sequence& s = stream->sequence;
    s.non_preemptible = true;
    s.width = slot == 0 ? width : 1;
    if (slot == 0) {
      MILLRACE_TRY_VOID(accept(*stream));
      stream->beams = group;
    } else {
      empty(s);
      s.request.prompt.clear();
    }
    group->slots.push_back(stream.get());
    streams.push_back(std::move(stream));
  }
  group->live = {group->slots.front()};
  group->candidates.resize(1);
  group->parked.assign(std::make_move_iterator(streams.begin() + 1), std::make_move_iterator(streams.end()));
  take_in(std::move(streams.front()));
  return {};
}

// The first slot was admitted: the others come with it.
void EngineCore::admit_beams(BeamGroup& group) {
  for (StreamPtr& stream : group.parked) {
    Sequence& s = stream->sequence;
    s.arrival = next_arrival_++;
    s.times.admitted = group.slots.front()->sequence.times.admitted;
    s.times.time_limit = group.slots.front()->sequence.times.time_limit;
    stream->beams = group.slots.front()->beams;
    s.phase = StreamPhase::running;
    s.tokens.reserve(static_cast<size_t>(s.max_total));
    s.kv.blocks.reserve(static_cast<size_t>(limits_.blocks_for(s.max_total)));
    limited_ += s.times.time_limit > 0;
    streams_[s.id] = stream.get();
    tell(ScheduleEvent::Kind::queued, s);
    tell(ScheduleEvent::Kind::admitted, s);
    running_.push_back(std::move(stream));
  }
  group.parked.clear();
  promise_blocks(group);
}

// Takes the likeliest next tokens of one beam; when all are there, the search goes on. False when it came to its end.
bool EngineCore::commit_beam(LiveStream& stream, int64_t row, std::vector<TokenEvent>& events) {
  BeamGroup& group = *stream.beams;
  if (stream.sequence.size() >= stream.sequence.max_total) {  // nothing was to be generated (max_tokens 0)
    finish_beams(group, FinishReason::length, events);
    return false;
  }
  const auto rank = static_cast<size_t>(std::ranges::find(group.live, &stream) - group.live.begin());
  executor_->likeliest(row, group.search.candidates_wanted(), group.candidates[rank]);
  if (++group.known < static_cast<int64_t>(group.live.size())) return true;
  group.known = 0;
  const auto next = group.search.advance(group.candidates);
  Sequence& first = group.slots.front()->sequence;
  if (first.times.first_token == 0) first.times.first_token = clock_->now_ns();
  stats_.generated_tokens += static_cast<int64_t>(next.size());
  if (next.empty() || stream.sequence.size() + 1 >= stream.sequence.max_total) {
    finish_beams(group, FinishReason::length, events);
    return false;
  }
  fork_beams(group, next);
  return true;
}

// A beam's first successor goes on in its stream; further ones move into streams whose beam has none, or that are
// empty.
void EngineCore::fork_beams(BeamGroup& group, const std::vector<BeamSearch::Next>& next) {
  std::vector<LiveStream*> hosts(next.size(), nullptr), spare;
  for (size_t i = 0; i < next.size(); ++i) {
    LiveStream* parent = group.live[static_cast<size_t>(next[i].from)];
    if (std::ranges::find(hosts, parent) == hosts.end()) hosts[i] = parent;
  }
  for (LiveStream* slot : group.slots) {
    if (std::ranges::find(hosts, slot) != hosts.end()) continue;
    let_go(*slot);
    empty(slot->sequence);
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

// width x longest in all, whatever is shared: what beams save by sharing now they may need when they part, so nobody
// else is admitted on it. The first slot stands for it.
void EngineCore::promise_blocks(BeamGroup& group) {
  std::vector<BlockId> held;
  for (LiveStream* slot : group.slots) {
    slot->sequence.kv.reserved_blocks = limits_.blocks_for(slot->sequence.max_total);
    held.insert(held.end(), slot->sequence.kv.blocks.begin(), slot->sequence.kv.blocks.end());
  }
  std::ranges::sort(held);
  group.slots.front()->sequence.kv.reserved_blocks += std::ranges::ssize(std::ranges::unique(held));
}

void EngineCore::fork(LiveStream& parent, LiveStream& child) {
  Sequence &from = parent.sequence, &to = child.sequence;
  to.tokens = from.tokens;
  to.prompt_tokens = from.prompt_tokens;
  share_blocks(from, child, from.computed);
}

// Tells the answers, best first, and gives back all that the search held. `reason` is for beams that still lived.
void EngineCore::finish_beams(BeamGroup& group, FinishReason reason, std::vector<TokenEvent>& events) {
  if (group.finished) return;
  group.finished = true;
  const LiveStream& first = *group.slots.front();
  const RequestId request = request_of(first.sequence.id);
  const auto answers = group.search.best(group.wanted);
  for (size_t answer = 0; answer < answers.size(); ++answer) {
    LiveStream& voice = *group.slots[answer];  // has its own detokenizer, unused so far
    const auto& tokens = answers[answer].tokens;
    for (size_t i = 0; i <= tokens.size(); ++i) {
      TokenEvent event;
      event.request = request;
      event.answer = static_cast<int64_t>(answer);
      event.made_ns = clock_->now_ns();
      if (i < tokens.size()) {
        event.token = tokens[i].chosen.token;
        executor_->write(voice, event);
        if (first.sequence.request.sampling.logprobs >= 0) {
          event.logprob = tokens[i].chosen;
          event.top_logprobs = tokens[i].top;
        }
      }
      if (i + 1 == tokens.size() || tokens.empty()) {
        executor_->flush(voice, event);
        event.finish = answers[answer].ended ? FinishReason::stop : reason;
        event.score = answers[answer].score;
        event.last = answer + 1 == answers.size();
        event.timings = timings(first.sequence, static_cast<int64_t>(tokens.size()));
        events.push_back(std::move(event));
        break;
      }
      events.push_back(std::move(event));
    }
  }
  stats_.cached_tokens += first.sequence.prefix.cached;
  for (LiveStream* slot : group.slots) {
    if (!streams_.contains(slot->sequence.id)) continue;  // parked
    const bool whole = slot == &first && (reason == FinishReason::stop || reason == FinishReason::length);
    planner_->observe({.kind = ScheduleEvent::Kind::left, .stream = &slot->sequence, .whole = whole});
    slot->ended = true;
    forget(*slot);
  }
}

}  // namespace millrace
