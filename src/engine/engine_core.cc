#include "engine/engine_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "engine/cpu_executor.h"

namespace millrace {
namespace {

Result<void> check_range(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return Error::user(fmt::format("{}: must be between {} and {}, got {}", name, min, max, value));
}

Result<void> check_options(const EngineOptions& options) {
  MILLRACE_TRY_VOID(check_range("threads", options.threads, 0, 1024));
  MILLRACE_TRY_VOID(check_range("context", options.context, 0, INT32_MAX));
  MILLRACE_TRY_VOID(check_range("max streams", options.max_streams, 1, 65536));
  MILLRACE_TRY_VOID(check_range("queue", options.queue, 0, 1 << 24));
  MILLRACE_TRY_VOID(check_range("KV tokens", options.kv_tokens, 0, int64_t{1} << 40));
  MILLRACE_TRY_VOID(check_range("KV block size", options.block_tokens, 1, 4096));
  return check_range("batch tokens", options.batch_tokens, 1, 65536);
}

}  // namespace

Result<std::unique_ptr<EngineCore>> EngineCore::create(std::shared_ptr<const LanguageModel> model, const EngineOptions& options,
                                                       const Clock* clock) {
  MILLRACE_TRY_VOID(check_options(options));
  MILLRACE_TRY(auto executor, CpuExecutor::create(std::move(model), options));
  return create(std::move(executor), options, clock);
}

Result<std::unique_ptr<EngineCore>> EngineCore::create(std::unique_ptr<Executor> executor, const EngineOptions& options, const Clock* clock) {
  MILLRACE_TRY_VOID(check_options(options));
  auto core = std::unique_ptr<EngineCore>(new EngineCore());
  core->executor_ = std::move(executor);
  core->kv_ = &core->executor_->kv();
  core->clock_ = clock ? clock : &core->steady_clock_;
  core->queue_limit_ = options.queue;
  if (options.prefix_cache) core->prefix_ = std::make_unique<PrefixIndex>(*core->kv_, 0);
  const ExecutorLimits& limits = core->executor_->limits();
  core->limits_ = {limits.tokens, limits.outputs, options.max_streams, core->kv_->total_blocks(), options.block_tokens};
  return core;
}

Result<void> EngineCore::check(const Request& request) const {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) return Error::user("prompt: must hold at least one token");
  if (prompt >= context()) {
    return Error::user(fmt::format("prompt: {} tokens do not leave room for an answer in a context of {}; shorten it or raise the context",
                                   prompt, context()));
  }
  if (request.max_tokens < -1) return Error::user(fmt::format("max_tokens: must be -1 or more, got {}", request.max_tokens));
  if (request.min_tokens < 0) return Error::user(fmt::format("min_tokens: must be 0 or more, got {}", request.min_tokens));
  MILLRACE_TRY_VOID(executor_->check(request));
  Sequence whole;
  whole.max_total = longest(request);
  if (blocks_needed(whole, limits_) > limits_.total_blocks) {
    return Error::resource(fmt::format("KV cache: {} tokens do not fit in {} blocks of {}; ask for fewer tokens or enlarge the cache",
                                       whole.max_total, limits_.total_blocks, limits_.block_tokens));
  }
  return {};
}

int64_t EngineCore::longest(const Request& request) const {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  return request.max_tokens < 0 ? context() : std::min(context(), prompt + request.max_tokens);
}

Result<std::unique_ptr<LiveStream>> EngineCore::make_stream(RequestId id, Request request) const {
  auto stream = std::make_unique<LiveStream>();
  Sequence& s = stream->sequence;
  s.id = id;
  s.tokens = request.prompt;
  s.prompt_tokens = s.size();
  s.max_total = longest(request);
  s.reserved_blocks = blocks_needed(s, limits_);
  s.request = std::move(request);
  MILLRACE_TRY_VOID(executor_->begin(*stream));
  stream->submitted = clock_->now_ns();
  return stream;
}

Result<void> EngineCore::add(RequestId id, Request request) {
  MILLRACE_TRY_VOID(check(request));
  if (static_cast<int64_t>(waiting_.size()) >= queue_limit_ && static_cast<int64_t>(running_.size()) >= limits_.max_streams) {
    return Error::resource(fmt::format("queue: {} requests are waiting already; try again later", waiting_.size()));
  }
  MILLRACE_TRY(auto stream, make_stream(id, std::move(request)));
  waiting_.push_back(std::move(stream));
  return {};
}

LiveStream* EngineCore::find(RequestId id) {
  for (auto& stream : running_)
    if (stream->sequence.id == id) return stream.get();
  for (auto& stream : waiting_)
    if (stream->sequence.id == id) return stream.get();
  return nullptr;
}

void EngineCore::cancel(RequestId id) {
  if (LiveStream* stream = find(id)) stream->cancelled = true;
}

void EngineCore::drop_cancelled(std::vector<TokenEvent>& events) {
  auto drop = [&](std::unique_ptr<LiveStream>& stream) {
    if (!stream->cancelled) return false;
    finish(*stream, FinishReason::cancelled, TokenEvent{}, events);
    return true;
  };
  std::erase_if(running_, drop);
  std::erase_if(waiting_, drop);
}

void EngineCore::admit(std::vector<TokenEvent>&) {
  std::vector<const Sequence*> waiting;
  for (const auto& stream : waiting_) waiting.push_back(&stream->sequence);
  view_.clear();
  for (const auto& stream : running_) view_.push_back(&stream->sequence);
  for (int64_t count = plan_admissions(waiting, view_, limits_); count > 0; --count) {
    LiveStream& stream = *waiting_.front();
    Sequence& s = stream.sequence;
    stream.admitted = clock_->now_ns();
    plan_.admitted.push_back(s.id);
    if (prefix_ && s.request.cache_prompt) {
      // At least one prompt token is computed: its logits choose the first new token.
      s.blocks = prefix_->match(std::span(s.tokens).first(static_cast<size_t>(s.size() - 1)));
      s.cached = s.computed = static_cast<int64_t>(s.blocks.size()) * limits_.block_tokens;
    }
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// Admission promised these blocks, so one is free or can be taken back from the prefix index.
void EngineCore::reserve_blocks(LiveStream& stream, int64_t tokens) {
  while (static_cast<int64_t>(stream.sequence.blocks.size()) < kv_->blocks_for(tokens)) {
    auto block = kv_->allocate();
    if (!block.ok() && prefix_ && prefix_->evict(1) == 1) block = kv_->allocate();
    assert(block.ok());
    stream.sequence.blocks.push_back(*block);
  }
}

const StepPlan& EngineCore::step(std::vector<TokenEvent>& events) {
  plan_ = {};
  drop_cancelled(events);
  admit(events);
  view_.clear();
  for (const auto& stream : running_) view_.push_back(&stream->sequence);
  StepPlan chunks = plan_step(view_, limits_);
  plan_.chunks = std::move(chunks.chunks);
  if (plan_.chunks.empty()) return plan_;
  work_.clear();
  for (const PlannedChunk& chunk : plan_.chunks) {
    work_.push_back({find(chunk.request), chunk});
    reserve_blocks(*work_.back().stream, chunk.first + chunk.count);
  }
  executor_->forward(work_);
  ++stats_.steps;
  for (const StepWork& item : work_) {
    Sequence& s = item.stream->sequence;
    const PlannedChunk& chunk = item.chunk;
    stats_.prompt_tokens += std::max<int64_t>(0, std::min(s.prompt_tokens, chunk.first + chunk.count) - chunk.first);
    s.computed = chunk.first + chunk.count;
  }
  sample_chunks(events);
  return plan_;
}

void EngineCore::sample_chunks(std::vector<TokenEvent>& events) {
  int64_t row = 0;
  for (const StepWork& item : work_) {
    if (!item.chunk.sample) continue;
    if (!commit_token(*item.stream, row, events)) std::erase_if(running_, [&](const auto& other) { return other.get() == item.stream; });
    ++row;
  }
}

// Chooses and appends one token and tells of it; false when that ended the stream.
bool EngineCore::commit_token(LiveStream& stream, int64_t row, std::vector<TokenEvent>& events) {
  Sequence& s = stream.sequence;
  TokenEvent event;
  event.request = s.id;
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
  if (stream.first_token == 0) stream.first_token = clock_->now_ns();
  if (!*stopped && s.size() < s.max_total) {
    events.push_back(std::move(event));
    return true;
  }
  finish(stream, *stopped ? FinishReason::stop : FinishReason::length, std::move(event), events);
  return false;
}

void EngineCore::finish(LiveStream& stream, FinishReason reason, TokenEvent event, std::vector<TokenEvent>& events) {
  Sequence& s = stream.sequence;
  event.request = s.id;
  event.finish = reason;
  if (reason != FinishReason::error) executor_->flush(stream, event);
  const int64_t now = clock_->now_ns();
  auto seconds = [](int64_t from, int64_t to) { return from > 0 && to > from ? static_cast<double>(to - from) * 1e-9 : 0.0; };
  RequestTimings& t = event.timings;
  t.prompt_tokens = s.prompt_tokens;
  t.cached_tokens = s.cached;
  t.generated_tokens = s.generated();
  t.queue_seconds = seconds(stream.submitted, stream.admitted);
  t.prefill_seconds = seconds(stream.admitted, stream.first_token);
  t.decode_seconds = seconds(stream.first_token, now);
  t.first_token_seconds = seconds(stream.submitted, stream.first_token);
  stats_.cached_tokens += s.cached;
  release(stream);
  events.push_back(std::move(event));
}

void EngineCore::release(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (prefix_ && s.request.cache_prompt && s.computed > 0)
    prefix_->insert(std::span(s.tokens).first(static_cast<size_t>(s.computed)), s.blocks);
  for (BlockId block : s.blocks) kv_->release(block);
  s.blocks.clear();
}

EngineStats EngineCore::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<int64_t>(running_.size());
  stats.waiting = static_cast<int64_t>(waiting_.size());
  stats.kv_blocks = kv_->total_blocks();
  stats.kv_blocks_free = kv_->free_blocks();
  stats.kv_blocks_cached = prefix_ ? prefix_->size() : 0;
  stats.kv_bytes = kv_->bytes();
  stats.scratch_bytes = executor_->limits().scratch_bytes;
  return stats;
}

Result<void> EngineCore::check_blocks() const {
  std::vector<int32_t> held(static_cast<size_t>(kv_->total_blocks()));
  int64_t in_use = 0;
  for (const auto& stream : running_)
    for (BlockId block : stream->sequence.blocks) ++held[static_cast<size_t>(block)];
  int64_t counted = 0, expected = prefix_ ? prefix_->size() : 0;
  for (BlockId block = 0; block < kv_->total_blocks(); ++block) {
    in_use += kv_->references(block) > 0;
    counted += kv_->references(block);
    expected += held[static_cast<size_t>(block)];
  }
  if (in_use + kv_->free_blocks() != kv_->total_blocks()) {
    return Error::internal(fmt::format("KV blocks: {} held + {} free != {}", in_use, kv_->free_blocks(), kv_->total_blocks()));
  }
  if (counted != expected) return Error::internal(fmt::format("KV blocks: {} references counted, {} held", counted, expected));
  return {};
}

}  // namespace millrace
