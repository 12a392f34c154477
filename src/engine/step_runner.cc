#include "engine/step_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/answer_group.h"
#include "run/documents/context_refresh.h"

namespace millrace {

Result<void> StepRunner::record_plans(const std::string& path) {
  plans_.open(path);
  if (!plans_) return Error::user(fmt::format("plans: {} cannot be written", path));
  return {};
}

bool StepRunner::fits(const StepPlan& plan) const {
  int64_t tokens = 0, outputs = 0;
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const PlannedChunk& chunk = plan.chunks[i];
    const LiveStream* stream = lists_.find(chunk.request);
    if (!stream) return false;
    const Sequence& s = stream->sequence;
    if (s.phase != StreamPhase::running || chunk.first != s.computed || chunk.own() < 1 || chunk.own() > s.remaining())
      return false;
    if (chunk.sample != (chunk.own() == s.remaining())) return false;
    if (chunk.drafted > 0 && (!s.decoding() || chunk.drafted > std::ssize(s.draft.tokens))) return false;
    if (s.kv.border >= 0 && chunk.first + chunk.count > s.kv.border) return false;
    if (s.prompt_apart && chunk.first < s.prompt_tokens && chunk.first + chunk.count > s.prompt_tokens) return false;
    if (s.kv.evict_at > 0 && chunk.first + chunk.count > s.kv.evict_at) return false;
    if (s.kv.state_at > 0 && chunk.first + chunk.count > s.kv.state_at) return false;
    for (size_t j = 0; j < i; ++j)
      if (plan.chunks[j].request == chunk.request) return false;
    tokens += chunk.count;
    outputs += chunk.outputs();
  }
  return tokens <= loop_.limits.batch_tokens && outputs <= loop_.limits.outputs;
}

void StepRunner::end_cancelled(std::vector<TokenEvent>& events) {
  if (!lists_.take_end_check()) return;
  const int64_t now = loop_.now();
  const auto check = [&](LiveStream& stream) {
    const bool late = stream.sequence.times.time_limit > 0 && now >= stream.sequence.times.time_limit;
    if (stream.ended || (!stream.cancelled && !late)) return;
    const FinishReason reason = stream.cancelled ? FinishReason::cancelled : FinishReason::time_limit;
    if (stream.beams)
      beams_.finish(*stream.beams, reason, events);
    else
      closer_.finish(stream, reason, TokenEvent{}, events);
  };
  for (const auto& stream : lists_.running()) check(*stream);
  for (const auto& stream : lists_.waiting()) check(*stream);
  for (const auto& stream : lists_.leaving()) check(*stream);
  lists_.erase_ended();
}

// A replayed step does not know how many steps without chunks were before it.
void StepRunner::begin_step(bool replayed) {
  documents_.begin_step(replayed ? INT64_MAX : loop_.limits.batch_tokens);
  for (const auto& stream : lists_.running())
    if (stream->sequence.phase == StreamPhase::running) documents_.run(*stream);
}

void StepRunner::run(StepPlan& plan, std::vector<TokenEvent>& events, bool replayed) {
  const StepShape shape = gather(plan, replayed);
  loads_.flush();
  if (plans_.is_open() && !plan.empty()) plans_ << plan.to_string() << std::endl;
  if (work_.empty()) return;
  forward(plan, shape);
  if (auto whole = loop_.executor->failure(); !whole.ok()) return fail(whole.error(), events);
  loads_.repair_store(work_);
  end_unread(events);
  sample(events);
  if (!output_.unread.empty()) lists_.erase_ended_running();
  drafts_.end_step();
}

// What the step computed means nothing, and must not get into the prefix cache or a store.
void StepRunner::fail(const Error& error, std::vector<TokenEvent>& events) {
  for (const StepWork& item : work_) {
    if (item.stream->ended) continue;  // with its search
    item.stream->sequence.computed = item.chunk.first;
    TokenEvent event;
    event.error = error;
    if (item.stream->beams)
      beams_.fail(*item.stream->beams, error, events);
    else
      closer_.finish(*item.stream, FinishReason::error, std::move(event), events);
  }
  lists_.erase_ended_running();
}

// Ends the streams whose keys could not be read. The results of the step mean nothing for them, and the file is not
// trusted: no other stream may find these streams' blocks in the prefix index.
void StepRunner::end_unread(std::vector<TokenEvent>& events) {
  if (output_.unread.empty()) return;
  for (const int64_t chunk : output_.unread) {
    LiveStream& stream = *work_[static_cast<size_t>(chunk)].stream;
    if (stream.ended) continue;  // with its search
    stream.sequence.prefix.caches = false;
    TokenEvent event;
    event.error = Error::resource(
        "KV tier disk: keys and values of this stream could not be read back from its file; send the request again");
    if (stream.beams)
      beams_.fail(*stream.beams, event.error, events);
    else
      closer_.finish(stream, FinishReason::error, std::move(event), events);
  }
  for (StepWork& item : work_) item.lost |= item.stream->ended;
  if (PrefixIndex* index = cache_.index()) index->clear();
}

void StepRunner::end_stored(std::vector<TokenEvent>& events) {
  const Error lost = Error::internal("the stream's keys and values were lost with the process that held them; retry");
  for (const auto& stream : lists_.running()) {
    if (stream->ended || stream->sequence.computed == 0) continue;
    stream->sequence.computed = 0;  // none of its blocks enters the prefix cache
    TokenEvent event;
    event.error = lost;
    closer_.finish(*stream, FinishReason::error, std::move(event), events);
  }
  lists_.erase_ended_running();
  if (PrefixIndex* index = cache_.index()) index->clear();
}

// Takes the chunk's blocks, without its drafted tokens where these lack one, and with as many of them as there are
// slots for their states.
bool StepRunner::reserve(LiveStream& stream, PlannedChunk& chunk) {
  const bool fits = ledger_.reserve(stream, chunk.first + chunk.count);
  if (chunk.drafted == 0) return fits;
  const int64_t own = chunk.own();
  chunk.drafted = fits ? ledger_.mark_states(stream, own, chunk.drafted) : 0;
  chunk.count = own + chunk.drafted;
  return fits || ledger_.reserve(stream, chunk.first + own);
}

// Takes the chunks' blocks. Where the prefix index cannot evict as many as the plan counted on, the chunk's stream is
// preempted, or skips the step if it cannot be. So does a stream some of whose documents are still to be encoded: of
// all streams together no more tokens are encoded in a step than it may run.
StepShape StepRunner::gather(StepPlan& plan, bool replayed) {
  work_.clear();
  const int64_t most = replayed ? INT64_MAX : loop_.limits.batch_tokens;
  int64_t budget = most;
  DocumentPlacer* const placer = loop_.executor->documents();
  StepShape shape;
  for (size_t i = 0; i < plan.chunks.size();) {
    LiveStream& stream = *lists_.find(plan.chunks[i].request);
    if (placer && !placer->hold_documents(stream.ref(), stream.encoded.get(), budget)) {
      plan.chunks.erase(plan.chunks.begin() + static_cast<ptrdiff_t>(i));
      continue;
    }
    const bool fits = reserve(stream, plan.chunks[i]);
    const PlannedChunk chunk = plan.chunks[i];
    if (!fits) {
      plan.chunks.erase(plan.chunks.begin() + static_cast<ptrdiff_t>(i));
      if (stream.sequence.non_preemptible) continue;
      plan.preempted_for_blocks.push_back({chunk.request, false});
      admission_.preempt(plan.preempted_for_blocks.back());
      continue;
    }
    work_.push_back({&stream, chunk});
    shape.add(chunk.first - stream.sequence.mean_left_out(), chunk.count, chunk.outputs(), stream.sequence.depth);
    ++i;
  }
  encoded_ = budget < most;
  return shape;
}

void StepRunner::forward(const StepPlan& plan, StepShape shape) {
  const int64_t before = loop_.now();
  bool other_work = reads();
  for (const StepWork& item : work_) {
    if (!refresh_is_due(item.stream->context, item.stream->stale, item.chunk.first, loop_.limits.batch_tokens))
      continue;
    loop_.executor->documents()->refresh(item.stream->ref(), item.stream->context, item.stream->stale);
    item.stream->stale.clear();
    other_work = true;
  }
  if (drafts_.before_pass(work_)) {
    shape = {};
    for (const auto& [stream, chunk, lost] : work_)
      shape.add(chunk.first - stream->sequence.mean_left_out(), chunk.count, chunk.outputs(), stream->sequence.depth);
  }
  input_.clear();
  loads_.begin_forward(work_);
  for (const StepWork& item : work_) add_chunk(item.stream->source(), item.chunk, input_);
  loop_.executor->forward(input_, output_);
  take_output();
  loads_.end_forward(work_);
  drafts_.after_pass(work_);
  const double seconds = static_cast<double>(loop_.now() - before) * 1e-9;
  if (!other_work) loop_.cost->observe(shape, seconds);
  ++loop_.stats.steps;
  recorder_.step(loop_.stats.steps, plan, work_, before, seconds);
  count_computed(seconds);
}

// Applies the observations of the pass to its streams. Each block keeps the largest share of attention that it
// received.
void StepRunner::take_output() {
  for (const int64_t chunk : output_.failed) work_[static_cast<size_t>(chunk)].stream->read_failed = true;
  for (const int64_t chunk : output_.unread) work_[static_cast<size_t>(chunk)].lost = true;
  const float* share = output_.shares.data();
  for (const StepMass& mass : output_.masses) {
    auto& importance = work_[static_cast<size_t>(mass.chunk)].stream->importance;
    const auto blocks = static_cast<size_t>(mass.blocks);
    importance.resize(std::max(importance.size(), blocks));
    for (size_t b = 0; b < blocks; ++b) importance[b] = std::max(importance[b], *share++);
  }
}

// Rows that are read take time that no StepShape has.
bool StepRunner::reads() const {
  return std::ranges::any_of(work_, [](const StepWork& item) {
    const Sequence& s = item.stream->sequence;
    return s.request.reader && item.chunk.first < s.prompt_tokens;
  });
}

void StepRunner::count_computed(double seconds) {
  int64_t step_tokens = 0;
  for (const StepWork& item : work_) step_tokens += item.chunk.count;
  loop_.stats.step_tokens.add(step_tokens);
  for (const StepWork& item : work_) {
    if (item.lost) continue;
    Sequence& s = item.stream->sequence;
    const PlannedChunk& chunk = item.chunk;
    s.computed = chunk.first + chunk.own();  // keep_drafted() counts the drafted ones
    loop_.stats.prompt_tokens += std::max<int64_t>(0, std::min(s.prompt_tokens, s.computed) - chunk.first);
    const int64_t kept = std::max<int64_t>(0, s.computed - s.progress.furthest);
    s.progress.furthest += kept;
    loop_.planner->observe({.kind = ScheduleEvent::Kind::ran,
                            .stream = &s,
                            .tokens = chunk.own(),
                            .sampled = chunk.sample,
                            .seconds = seconds,
                            .kept = kept});
  }
}

void StepRunner::sample(std::vector<TokenEvent>& events) {
  choices_.clear();
  for (const StepWork& item : work_)
    choices_.push_back({.sequence = &item.stream->sequence,
                        .own = &item.stream->own,
                        .chunk = item.chunk,
                        .chooses = !item.lost && !item.stream->beams});
  loop_.executor->chooser().choose_ahead(choices_, drafts_.acceptance());
  int64_t row = 0;
  bool ended = false;
  for (const StepWork& item : work_) {
    if (!item.lost) evictions_.run(*item.stream);
    if (!item.lost) documents_.run(*item.stream);
    if (!item.lost) give_back(item);
    const bool drafts = item.chunk.drafted > 0;  // the state includes drafted tokens until commit_chunk()
    if (!item.lost && !drafts) states_.take(*item.stream);
    if (!item.chunk.sample) continue;
    if (!item.lost) {
      const bool goes_on = commit_chunk(item, row, events);
      if (goes_on && drafts) states_.take(*item.stream);
      ended |= !goes_on;
    }
    row += item.chunk.outputs();
  }
  if (ended) lists_.erase_ended_running();
}

// Blocks that no later token of the stream sees. Those of the prompt are in the prefix index by then, which keeps them
// until they are evicted. A step that only decodes inserts nothing.
void StepRunner::give_back(const StepWork& item) {
  if (!loop_.kv().gives_back()) return;
  const Sequence& s = item.stream->sequence;
  if (item.chunk.own() > 1 || s.computed <= s.prompt_tokens) cache_.insert(*item.stream);
  ledger_.give_back(*item.stream);
}

// Positions that the first `candidates` tokens of the stream's draft reach.
void StepRunner::count_positions(DraftState& draft, int64_t candidates) {
  std::array<uint8_t, kDraftPositions> depths{};
  int64_t deepest = 0;
  for (int64_t i = 0; i < std::min<int64_t>(candidates, kDraftPositions); ++i) {
    const int64_t parent = draft.parent(i);
    const int64_t depth = parent < 0 ? 1 : depths[static_cast<size_t>(parent)] + 1;
    depths[static_cast<size_t>(i)] = static_cast<uint8_t>(depth);
    deepest = std::max(deepest, depth);
  }
  for (size_t i = 0; i < static_cast<size_t>(deepest); ++i) {
    ++draft.drafted_at[i];
    ++loop_.stats.drafted_at[i];
  }
}

// Commits the token after the stream's last one, and further ones while the draft before them is kept. The slots of
// rejected tokens are written again by the next step, and their attention is not counted. A recurrent state becomes the
// one behind the last kept token. False: the stream has ended.
bool StepRunner::commit_chunk(const StepWork& item, int64_t row, std::vector<TokenEvent>& events) {
  Sequence& s = item.stream->sequence;
  const int64_t drafted = item.chunk.drafted, candidates = s.draft.candidates(drafted);
  s.draft.passes += s.size() < s.max_total;
  s.draft.drafted += candidates;
  loop_.stats.drafted_tokens += candidates;
  count_positions(s.draft, candidates);
  int64_t kept = 0, last = -1;  // the drafted token that was kept last
  for (int64_t at = -1;; ++kept, last = at) {
    if (!commit(*item.stream, row + 1 + at, events)) return false;
    at = drafts_.next(s, at, drafted);
    if (at < 0 || !loop_.executor->chooser().may_choose(item.stream->ref(), row + 1 + at)) break;
    keep_drafted(*item.stream, kept, at - kept);
  }
  drafts_.observe(*item.stream, drafted, kept + 1, row, *loop_.executor);
  ledger_.keep_state(*item.stream, item.chunk.own() + last);
  if (drafted == 0) return true;
  ledger_.trim(*item.stream);
  return true;
}

// The last token was a drafted one, at `position` of the draft, so its keys and values are there already, `beyond`
// slots behind those of a chain: as if a step had run it.
void StepRunner::keep_drafted(LiveStream& stream, int64_t position, int64_t beyond) {
  Sequence& s = stream.sequence;
  if (beyond > 0) {
    for (int64_t g = 0; g <= std::ssize(s.kv.windows); ++g) {
      const std::vector<BlockId>& table = g == 0 ? s.kv.blocks : s.kv.windows[static_cast<size_t>(g - 1)].blocks;
      const int64_t slot = s.computed - s.kv.left_out_of(g);
      loop_.kv().copy_slot(g, table, slot + beyond, slot);
    }
  }
  ++s.computed;
  ++s.draft.accepted;
  ++loop_.stats.accepted_tokens;
  ++s.draft.accepted_at[static_cast<size_t>(position)];
  ++loop_.stats.accepted_at[static_cast<size_t>(position)];
  const int64_t kept = std::max<int64_t>(0, s.computed - s.progress.furthest);
  s.progress.furthest += kept;
  loop_.planner->observe(
      {.kind = ScheduleEvent::Kind::ran, .stream = &s, .tokens = 1, .sampled = true, .seconds = 0, .kept = kept});
  if (stream.eviction) stream.eviction->keep_drafted();
  evictions_.run(stream);
}

// Samples and appends one token, and emits its event. False: the stream has ended.
bool StepRunner::commit(LiveStream& stream, int64_t row, std::vector<TokenEvent>& events) {
  if (stream.beams) return beams_.commit(stream, row, events);
  Sequence& s = stream.sequence;
  TokenEvent event;
  if (stream.read_failed) {
    event.error = Error::resource("reader: out of memory while reading the prompt");
    closer_.finish(stream, FinishReason::error, std::move(event), events);
    return false;
  }
  if (s.size() >= s.max_total) {  // max_tokens is 0
    closer_.finish(stream, FinishReason::length, std::move(event), events);
    return false;
  }
  auto stopped = loop_.executor->chooser().choose(stream.ref(), row, event);
  if (!stopped.ok()) {
    event.error = stopped.error();
    closer_.finish(stream, FinishReason::error, std::move(event), events);
    return false;
  }
  s.tokens.push_back(event.token);
  ++loop_.stats.generated_tokens;
  event.made_ns = loop_.now();
  if (s.times.first_token == 0) {
    s.times.first_token = event.made_ns;
    event.timings.prompt_tokens = std::ssize(s.request.prompt);
    event.timings.cached_tokens = s.prefix.cached;
  }
  stream.logprob_sum += static_cast<double>(event.logprob.logprob);
  if (s.request.sampling.logprobs < 0) event.logprob = {};
  // Whether the last token also ends the stream is not known until it has been parsed (MaskWorker).
  const bool unsettled = !*stopped && stream.own.sampler && !stream.own.sampler->settled();
  if (*stopped || (s.size() >= s.max_total && !unsettled)) {
    closer_.finish(stream, *stopped ? FinishReason::stop : FinishReason::length, std::move(event), events);
    return false;
  }
  event.request = request_of(s.id);
  event.answer = answer_of(s.id);
  if (stream.answers)
    stream.answers->add(std::move(event), 0, events);
  else
    events.push_back(std::move(event));
  return true;
}

}  // namespace millrace
