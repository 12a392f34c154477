#include "engine/engine_core.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/beam_group.h"
#include "run/adapter_registry.h"
#include "run/cpu_executor.h"

namespace millrace {
namespace {

constexpr int64_t kMostAnswers = 128;

Result<void> check_range(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return Error::user(fmt::format("{}: must be between {} and {}, got {}", name, min, max, value));
}

Result<void> check_seconds(const char* name, double value) {
  if (value >= 0 && value <= 1e9) return {};
  return Error::user(fmt::format("{}: must be between 0 and 1e9 seconds, got {}", name, value));
}

Result<void> check_options(const EngineOptions& options) {
  MILLRACE_TRY_VOID(check_range("threads", options.threads, 0, 1024));
  MILLRACE_TRY_VOID(check_range("context", options.context, 0, INT32_MAX));
  MILLRACE_TRY_VOID(check_range("max streams", options.max_streams, 1, 65536));
  MILLRACE_TRY_VOID(check_range("resident streams", options.resident_streams, 0, 1 << 20));
  MILLRACE_TRY_VOID(check_range("queue", options.queue, 0, 1 << 24));
  MILLRACE_TRY_VOID(check_range("KV tokens", options.kv_tokens, 0, int64_t{1} << 40));
  MILLRACE_TRY_VOID(check_range("swap tokens", options.swap_tokens, 0, int64_t{1} << 40));
  if (!options.kv_ssd.empty())
    MILLRACE_TRY_VOID(check_range("KV store size", options.kv_ssd_size, 1, int64_t{1} << 50));
  if (!(options.kv_ssd_fetch > 0 && options.kv_ssd_fetch <= 1))
    return Error::user(
        fmt::format("KV store: fetches more than 0 and at most 1 of a prompt, got {}", options.kv_ssd_fetch));
  if (options.kv_ssd_fetch < 1 && options.kv_ssd_order != "importance")
    return Error::user("KV store: to fetch a part of a prompt its blocks must be in order of importance");
  MILLRACE_TRY_VOID(check_range("KV block size", options.block_tokens, 1, kMostBlockTokens));
  return check_range("batch tokens", options.batch_tokens, 1, 65536);
}

Result<void> check_answers(const Request& request) {
  MILLRACE_TRY_VOID(check_range("n", request.n, 1, kMostAnswers));
  MILLRACE_TRY_VOID(check_range("beams", request.beams, 1, kMostAnswers));
  if (request.best_of != 0) MILLRACE_TRY_VOID(check_range("best_of", request.best_of, request.n, kMostAnswers));
  if (request.beams == 1) return {};
  if (request.best_of > request.n) return Error::user("best_of: does not go with beams, which already choose the best");
  if (request.n > request.beams) return Error::user(fmt::format("n: {} answers of {} beams", request.n, request.beams));
  if (!(request.length_penalty >= -100 && request.length_penalty <= 100)) {
    return Error::user(fmt::format("length penalty: must be between -100 and 100, got {}", request.length_penalty));
  }
  return {};
}

int64_t after_ns(int64_t now, double seconds) { return seconds > 0 ? now + static_cast<int64_t>(seconds * 1e9) : 0; }

}  // namespace

Result<std::unique_ptr<EngineCore>> EngineCore::create(std::shared_ptr<const LanguageModel> model,
                                                       const EngineOptions& options, const Clock* clock) {
  MILLRACE_TRY_VOID(check_options(options));
  MILLRACE_TRY_VOID(make_policy(options.policy));  // before memory is taken
  MILLRACE_TRY(auto executor, CpuExecutor::create(std::move(model), options));
  return create(std::move(executor), options, clock);
}

Result<std::unique_ptr<EngineCore>> EngineCore::create(std::unique_ptr<Executor> executor, const EngineOptions& options,
                                                       const Clock* clock, std::unique_ptr<SchedulerPolicy> policy) {
  MILLRACE_TRY_VOID(check_options(options));
  auto core = std::unique_ptr<EngineCore>(new EngineCore());
  if (!policy) {
    MILLRACE_TRY(policy, make_policy(options.policy));
  }
  core->planner_ = std::make_unique<Planner>(std::move(policy));
  core->executor_ = std::move(executor);
  core->kv_ = &core->executor_->kv();
  core->clock_ = clock ? clock : &core->steady_clock_;
  core->queue_limit_ = options.queue;
  core->cost_ = core->executor_->cost();
  if (!core->cost_) {
    if (options.cost_model.empty()) {
      core->own_cost_ = make_learned_cost();
    } else {
      MILLRACE_TRY(core->own_cost_, load_cost_model(options.cost_model));
    }
    core->cost_ = core->own_cost_.get();
  }
  if (options.prefix_cache) {
    const PrefixEvictor* evictor = find_prefix_evictor(options.prefix_evict);
    std::string known;
    for (const PrefixEvictor* one : prefix_evictors())
      known += fmt::format("{}{}", known.empty() ? "" : ", ", one->name);
    if (!evictor) return Error::user(fmt::format("prefix evictor '{}'; there are: {}", options.prefix_evict, known));
    MILLRACE_TRY_VOID(core->open_store(options));
    core->prefix_ = std::make_unique<PrefixIndex>(
        *core->kv_,
        PrefixIndexOptions{.identity = 0, .evictor = evictor, .clock = core->clock_, .leaving = core->store_hook()});
    const bool packs = !options.kv_ssd.empty() && options.kv_ssd_order == "importance";
    if (packs || (evictor->needs & kNeedsAttentionMass)) core->executor_->observe_attention();
  } else if (!options.kv_ssd.empty()) {
    return Error::user("KV store: holds blocks of the prefix cache, which is switched off");
  }
  if (options.swap_tokens > 0) {
    MILLRACE_TRY(core->tier_, core->executor_->make_tier(options.swap_tokens));
  }
  const ExecutorLimits& limits = core->executor_->limits();
  core->limits_ = {limits.tokens,
                   limits.outputs,
                   options.max_streams,
                   core->kv_->total_blocks(),
                   core->kv_->layout().block_tokens,
                   options.resident_streams,
                   limits.context};
  core->holders_.assign(static_cast<size_t>(core->kv_->ids()), 0);
  if (!options.record_plans.empty()) {
    core->record_.open(options.record_plans);
    if (!core->record_) return Error::user(fmt::format("plans: {} cannot be written", options.record_plans));
  }
  return core;
}

Result<void> EngineCore::check(const Request& request) const {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) return Error::user("prompt: must hold at least one token");
  if (prompt >= context()) {
    return Error::user(fmt::format(
        "prompt: {} tokens do not leave room for an answer in a context of {}; shorten it or raise the context", prompt,
        context()));
  }
  if (request.max_tokens < -1)
    return Error::user(fmt::format("max_tokens: must be -1 or more, got {}", request.max_tokens));
  if (request.min_tokens < 0)
    return Error::user(fmt::format("min_tokens: must be 0 or more, got {}", request.min_tokens));
  MILLRACE_TRY_VOID(check_answers(request));
  MILLRACE_TRY_VOID(check_seconds("deadline", request.deadline_seconds));
  MILLRACE_TRY_VOID(check_seconds("time limit", request.time_limit_seconds));
  MILLRACE_TRY_VOID(check_seconds("keep", request.keep_seconds));
  MILLRACE_TRY_VOID(executor_->check(request));
  if (request.beams > limits_.residents()) {
    return Error::user(
        fmt::format("beams: at most {} streams run at once, {} asked for", limits_.residents(), request.beams));
  }
  const int64_t tokens = longest(request);
  if (request.beams * limits_.blocks_for(tokens) > limits_.total_blocks) {
    return Error::resource(
        fmt::format("KV cache: {} tokens{} do not fit in {} blocks of {}; ask for fewer tokens or enlarge the cache",
                    tokens, request.beams > 1 ? fmt::format(" of {} beams", request.beams) : "", limits_.total_blocks,
                    limits_.block_tokens));
  }
  return {};
}

int64_t EngineCore::longest(const Request& request) const {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  return request.max_tokens < 0 ? context() : std::min(context(), prompt + request.max_tokens);
}

Result<EngineCore::StreamPtr> EngineCore::make_stream(RequestId id, Request request) {
  auto stream = std::make_unique<LiveStream>();
  Sequence& s = stream->sequence;
  s.id = id;
  s.tokens = request.prompt;
  s.prompt_tokens = s.size();
  s.max_total = longest(request);
  s.times.submitted = submitted_ns_ > 0 ? submitted_ns_ : clock_->now_ns();
  s.times.deadline = after_ns(s.times.submitted, request.deadline_seconds);
  s.times.time_limit = after_ns(s.times.submitted, request.time_limit_seconds);
  s.request = std::move(request);
  MILLRACE_TRY_VOID(executor_->begin(*stream));
  s.prefix.caches = prefix_ && s.request.cache_prompt;
  s.prefix.scope = scopes_.of(s.request.tenant, s.request.prefix_group, adapter_identity(stream->adapters));
  return stream;
}

Result<void> EngineCore::add(RequestId id, Request request, int64_t submitted_ns) {
  submitted_ns_ = submitted_ns;
  MILLRACE_TRY_VOID(check(request));
  if (static_cast<int64_t>(waiting_.size()) >= queue_limit_ &&
      static_cast<int64_t>(running_.size()) >= limits_.max_streams) {
    return Error::resource(fmt::format("queue: {} requests are waiting already; try again later", waiting_.size()));
  }
  if (request.beams > 1) return add_beams(id, std::move(request));
  const int64_t answers = std::max(request.n, request.best_of);
  auto group = answers > 1 ? std::make_shared<AnswerGroup>(answers, request.n) : nullptr;
  std::vector<StreamPtr> streams;  // all of them, or none is taken in
  for (int64_t answer = 0; answer < answers; ++answer) {
    Request one = answer + 1 == answers ? std::move(request) : request;
    one.sampling.seed += static_cast<uint64_t>(answer);
    MILLRACE_TRY(auto stream, make_stream(answer_stream(id, answer), std::move(one)));
    stream->sequence.parent = answer > 0 ? id : 0;
    stream->answers = group;
    stream->scored = group && group->ranks();
    streams.push_back(std::move(stream));
  }
  MILLRACE_TRY_VOID(accept(*streams.front()));
  for (StreamPtr& stream : streams) take_in(std::move(stream));
  return {};
}

void EngineCore::take_in(StreamPtr stream) {
  Sequence& s = stream->sequence;
  s.arrival = next_arrival_++;
  limited_ += s.times.time_limit > 0;
  streams_[s.id] = stream.get();
  tell(ScheduleEvent::Kind::queued, s);
  enqueue(std::move(stream));
}

Result<void> EngineCore::accept(const LiveStream& stream) {
  return planner_->policy().accept(stream.sequence, make_view());
}

LiveStream* EngineCore::find(RequestId stream) {
  auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second;
}

void EngineCore::cancel(RequestId id) {
  for (auto& [stream, live] : streams_) {
    if (request_of(stream) != id) continue;
    live->cancelled = true;
    cancelled_ = true;
  }
}

void EngineCore::drop_ended(std::vector<TokenEvent>& events) {
  if (!cancelled_ && limited_ == 0) return;
  cancelled_ = false;
  const int64_t now = clock_->now_ns();
  auto drop = [&](StreamPtr& stream) {
    if (stream->ended) return true;  // with its search
    const bool late = stream->sequence.times.time_limit > 0 && now >= stream->sequence.times.time_limit;
    if (!stream->cancelled && !late) return false;
    finish(*stream, stream->cancelled ? FinishReason::cancelled : FinishReason::time_limit, TokenEvent{}, events);
    return true;
  };
  std::erase_if(running_, drop);
  std::erase_if(waiting_, drop);
  std::erase_if(leaving_, drop);
}

ScheduleView EngineCore::make_view() {
  mark_answers();
  waiting_view_.clear();
  running_view_.clear();
  for (const auto& stream : waiting_) waiting_view_.push_back(&stream->sequence);
  for (const auto& stream : running_) running_view_.push_back(&stream->sequence);
  int64_t leaving = 0;
  for (const auto& stream : leaving_)
    leaving += static_cast<int64_t>(stream->sequence.kv.blocks.size()) - stream->sequence.kv.shared_blocks;
  return {waiting_view_,    running_view_,
          clock_->now_ns(), kv_->total_blocks() - held_blocks_,
          leaving,          tier_ ? tier_->free_tokens() : 0,
          limits_,          cost_};
}

void EngineCore::begin_step(std::vector<TokenEvent>& events) {
  plan_.clear();
  drop_ended(events);
  poll_tier();
  poll_store();
  end_waits();
}

const StepPlan& EngineCore::step(std::vector<TokenEvent>& events) {
  begin_step(events);
  planner_->plan_places(make_view(), plan_);
  for (const PlannedPreemption& preemption : plan_.preempted) preempt(preemption);
  for (RequestId id : plan_.admitted) admit(id);
  join_loads();
  planner_->plan_chunks(make_view(), plan_);
  for (const PlannedPreemption& preemption : plan_.preempted_for_blocks) preempt(preemption);
  run_chunks(events);
  part_loads();
  const bool moves = !leaving_.empty() || std::ranges::any_of(running_, [](const StreamPtr& stream) {
    return stream->sequence.phase == StreamPhase::loading;
  });
  planner_->observe_step(!work_.empty(), moves);
  if (plan_.empty() && loads_ > 0 && events.empty()) store_->wait();
  return plan_;
}

Result<void> EngineCore::replay(const StepPlan& plan, std::vector<TokenEvent>& events) {
  const Error misfit =
      Error::user(fmt::format("step plan: does not fit the streams as they stand: {}", plan.to_string()));
  begin_step(events);
  mark_answers();
  for (const PlannedPreemption& preemption : plan.preempted)
    if (!preempt(preemption)) return misfit;
  for (RequestId id : plan.admitted)
    if (!admit(id)) return misfit;
  finish_loads();  // where they stood when the plan was made is not known
  for (const PlannedPreemption& preemption : plan.preempted_for_blocks)
    if (!preempt(preemption)) return misfit;
  plan_ = plan;
  if (!check_chunks(plan).ok()) return misfit;
  run_chunks(events);
  return plan_ == plan ? Result<void>() : misfit;  // blocks were lacking, and somebody gave way who should not
}

Result<void> EngineCore::check_chunks(const StepPlan& plan) const {
  const Error bad = Error::user("");
  int64_t tokens = 0, outputs = 0;
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const PlannedChunk& chunk = plan.chunks[i];
    auto found = streams_.find(chunk.request);
    if (found == streams_.end()) return bad;
    const Sequence& s = found->second->sequence;
    if (s.phase != StreamPhase::running || chunk.first != s.computed || chunk.count < 1 || chunk.count > s.remaining())
      return bad;
    if (chunk.sample != (chunk.count == s.remaining())) return bad;
    for (size_t j = 0; j < i; ++j)
      if (plan.chunks[j].request == chunk.request) return bad;
    tokens += chunk.count;
    outputs += chunk.sample;
  }
  if (tokens > limits_.batch_tokens || outputs > limits_.outputs) return bad;
  return {};
}

void EngineCore::run_chunks(std::vector<TokenEvent>& events) {
  work_.clear();
  StepShape shape;
  for (size_t i = 0; i < plan_.chunks.size();) {
    const PlannedChunk chunk = plan_.chunks[i];
    LiveStream& stream = *find(chunk.request);
    if (!reserve_blocks(stream,
                        chunk.first + chunk.count)) {  // the prefix index could not give back what was counted on
      plan_.chunks.erase(plan_.chunks.begin() + static_cast<ptrdiff_t>(i));
      if (stream.sequence.non_preemptible) continue;  // it waits
      plan_.preempted_for_blocks.push_back({chunk.request, false});
      preempt(plan_.preempted_for_blocks.back());
      continue;
    }
    work_.push_back({&stream, chunk});
    shape.add(chunk.first - stream.sequence.kv.left_out, chunk.count, chunk.sample);
    ++i;
  }
  if (store_) store_->flush();
  if (record_.is_open() && !plan_.empty()) record_ << plan_.to_string() << std::endl;
  if (work_.empty()) return;
  const int64_t before = clock_->now_ns();
  executor_->forward(work_);
  for (StepWork& item : work_) item.lost = item.stream->store_ticket != 0 && !end_joined(*item.stream);
  const double seconds = static_cast<double>(clock_->now_ns() - before) * 1e-9;
  cost_->observe(shape, seconds);
  ++stats_.steps;
  if (recorder_ && recorder_->forgotten(before)) recorder_.reset();
  if (recorder_) recorder_->step(stats_.steps, plan_, work_, before, seconds);
  int64_t step_tokens = 0;
  for (const StepWork& item : work_) step_tokens += item.chunk.count;
  stats_.step_tokens.add(step_tokens);
  for (const StepWork& item : work_) {
    if (item.lost) continue;
    Sequence& s = item.stream->sequence;
    const PlannedChunk& chunk = item.chunk;
    stats_.prompt_tokens += std::max<int64_t>(0, std::min(s.prompt_tokens, chunk.first + chunk.count) - chunk.first);
    s.computed = chunk.first + chunk.count;
    const int64_t kept = std::max<int64_t>(0, s.computed - s.progress.furthest);
    s.progress.furthest += kept;
    planner_->observe({.kind = ScheduleEvent::Kind::ran,
                       .stream = &s,
                       .tokens = chunk.count,
                       .sampled = chunk.sample,
                       .seconds = seconds,
                       .kept = kept});
  }
  if (store_)
    for (const StepWork& item : work_)
      if (item.stream->mend_end > 0) mend_store(*item.stream);
  sample_chunks(events);
}

void EngineCore::sample_chunks(std::vector<TokenEvent>& events) {
  int64_t row = 0;
  bool ended = false;
  for (StepWork& item : work_) {
    if (!item.chunk.sample) continue;
    if (!item.lost && !commit_token(*item.stream, row, events)) ended = item.stream->ended = true;
    ++row;
  }
  if (ended) std::erase_if(running_, [](const auto& stream) { return stream->ended; });
}

// Chooses and appends one token and tells of it; false when that ended the stream.
bool EngineCore::commit_token(LiveStream& stream, int64_t row, std::vector<TokenEvent>& events) {
  if (stream.beams) return commit_beam(stream, row, events);
  Sequence& s = stream.sequence;
  TokenEvent event;
  if (s.size() >= s.max_total) {  // nothing was to be generated (max_tokens 0)
    finish(stream, FinishReason::length, std::move(event), events);
    return false;
  }
  auto stopped = executor_->choose(stream, row, event);
  if (!stopped.ok()) {
    event.error = stopped.error();
    finish(stream, FinishReason::error, std::move(event), events);
    return false;
  }
  s.tokens.push_back(event.token);
  ++stats_.generated_tokens;
  event.made_ns = clock_->now_ns();
  if (s.times.first_token == 0) s.times.first_token = event.made_ns;
  stream.logprob_sum += static_cast<double>(event.logprob.logprob);
  if (s.request.sampling.logprobs < 0) event.logprob = {};
  if (!*stopped && s.size() < s.max_total) {
    event.request = request_of(s.id);
    event.answer = answer_of(s.id);
    if (stream.answers)
      stream.answers->tell(std::move(event), 0, events);
    else
      events.push_back(std::move(event));
    return true;
  }
  finish(stream, *stopped ? FinishReason::stop : FinishReason::length, std::move(event), events);
  return false;
}

// Says the last word of a stream and gives back all that it held; its owner's list is the caller's to clear.
void EngineCore::finish(LiveStream& stream, FinishReason reason, TokenEvent event, std::vector<TokenEvent>& events) {
  if (stream.beams) return finish_beams(*stream.beams, reason, events);
  Sequence& s = stream.sequence;
  event.request = request_of(s.id);
  event.answer = answer_of(s.id);
  event.finish = reason;
  event.last = true;
  if (reason != FinishReason::error) executor_->flush(stream, event);
  event.timings = timings(s, s.generated());
  if (event.made_ns == 0) event.made_ns = clock_->now_ns();
  stats_.cached_tokens += s.prefix.cached;
  planner_->observe({.kind = ScheduleEvent::Kind::left,
                     .stream = &s,
                     .whole = reason == FinishReason::stop || reason == FinishReason::length});
  const double score = s.generated() > 0 ? stream.logprob_sum / static_cast<double>(s.generated()) : 0;
  if (stream.answers)
    stream.answers->tell(std::move(event), score, events);
  else
    events.push_back(std::move(event));
  forget(stream);
}

RequestTimings EngineCore::timings(const Sequence& s, int64_t generated) const {
  auto seconds = [](int64_t from, int64_t to) {
    return from > 0 && to > from ? static_cast<double>(to - from) * 1e-9 : 0.0;
  };
  RequestTimings t;
  t.prompt_tokens = static_cast<int64_t>(s.request.prompt.size());
  t.cached_tokens = s.prefix.cached;
  t.left_out_tokens = s.kv.most_left_out;
  t.generated_tokens = generated;
  t.queue_seconds = seconds(s.times.submitted, s.times.admitted);
  t.prefill_seconds = seconds(s.times.admitted, s.times.first_token);
  t.decode_seconds = seconds(s.times.first_token, clock_->now_ns());
  t.first_token_seconds = seconds(s.times.submitted, s.times.first_token);
  t.preemptions = s.progress.preemptions;
  return t;
}

EngineStats EngineCore::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<int64_t>(running_.size());
  stats.waiting = static_cast<int64_t>(waiting_.size() + leaving_.size());
  stats.kv_blocks = kv_->total_blocks();
  stats.kv_blocks_free = kv_->free_blocks();
  stats.kv_blocks_cached = prefix_ ? prefix_->size() : 0;
  if (prefix_) {
    const PrefixStats index = prefix_->stats();
    stats.prefix = {index.queries,       index.query_tokens,    index.hit_tokens,  index.blocks.stored,
                    index.blocks.erased, index.blocks.lifetime, index.blocks.idle, index.blocks.reuse_gap};
  }
  stats.livelocks = planner_->livelocks();
  stats.kv_bytes = kv_->bytes();
  stats.scratch_bytes = executor_->limits().scratch_bytes;
  stats.store = store_stats();
  return stats;
}

}  // namespace millrace
