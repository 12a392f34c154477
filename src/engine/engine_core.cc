#include "engine/engine_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/cpu.h"
#include "engine/language_model.h"
#include "sampling/logprobs.h"
#include "sampling/schema.h"
#include "sampling/setup.h"

namespace millrace {
namespace {

constexpr int64_t kDefaultKvTokens = 65536;

Result<void> check_range(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return Error::user(fmt::format("{}: must be between {} and {}, got {}", name, min, max, value));
}

}  // namespace

Result<std::unique_ptr<EngineCore>> EngineCore::create(std::shared_ptr<const LanguageModel> model, const EngineOptions& options,
                                                       const Clock* clock) {
  MILLRACE_TRY_VOID(check_range("threads", options.threads, 0, 1024));
  MILLRACE_TRY_VOID(check_range("context", options.context, 0, INT32_MAX));
  MILLRACE_TRY_VOID(check_range("max streams", options.max_streams, 1, 65536));
  MILLRACE_TRY_VOID(check_range("queue", options.queue, 0, 1 << 24));
  MILLRACE_TRY_VOID(check_range("KV tokens", options.kv_tokens, 0, int64_t{1} << 40));
  MILLRACE_TRY_VOID(check_range("KV block size", options.block_tokens, 1, 4096));
  MILLRACE_TRY_VOID(check_range("batch tokens", options.batch_tokens, 1, 65536));
  auto core = std::unique_ptr<EngineCore>(new EngineCore());
  core->model_ = std::move(model);
  core->clock_ = clock ? clock : &core->steady_clock_;
  core->queue_limit_ = options.queue;
  core->pool_ = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : available_cores());
  MILLRACE_TRY_VOID(core->size_memory(options));
  return core;
}

Result<void> EngineCore::size_memory(const EngineOptions& options) {
  const Model& model = *model_->parts().model;
  context_length_ = options.context > 0 ? options.context : model.context();
  if (context_length_ > model.context()) {
    return Error::user(fmt::format("context: the model was loaded for {} tokens, {} asked for", model.context(), context_length_));
  }
  int64_t kv_tokens = options.kv_tokens > 0 ? options.kv_tokens
                                            : std::max(context_length_, std::min(options.max_streams * context_length_, kDefaultKvTokens));
  const Format* format = find_format(options.kv_format);
  if (!format || !model_->parts().kernels.find_attention(format)) {
    std::string known;
    for (const auto& kernel : model_->parts().kernels.attention) known += fmt::format("{}{}", known.empty() ? "" : ", ", kernel.kv_format->name);
    return Error::unsupported(fmt::format("KV format '{}'; supported: {}", options.kv_format, known));
  }
  KvLayout layout{format, options.block_tokens, model.kv_layers()};
  const int64_t blocks = (kv_tokens + options.block_tokens - 1) / options.block_tokens;
  MILLRACE_TRY(auto pool, KvPool::create(std::move(layout), blocks));
  kv_ = std::make_unique<KvPool>(std::move(pool));
  if (options.prefix_cache) {
    const PrefixEvictor* evictor = find_prefix_evictor(options.prefix_evict);
    std::string known;
    for (const PrefixEvictor* one : prefix_evictors()) known += fmt::format("{}{}", known.empty() ? "" : ", ", one->name);
    if (!evictor) return Error::user(fmt::format("prefix evictor '{}'; there are: {}", options.prefix_evict, known));
    prefix_ = std::make_unique<PrefixIndex>(*kv_, PrefixIndexOptions{.identity = 0, .evictor = evictor, .clock = clock_});
  }

  ForwardLimits forward;
  forward.tokens = std::max(options.batch_tokens, options.max_streams);
  forward.outputs = std::min(forward.tokens, options.max_streams);
  forward.context = context_length_;
  MILLRACE_TRY(auto context, ForwardContext::create(model.spec(), model_->parts().kernels, *pool_, *kv_, forward));
  context_ = std::make_unique<ForwardContext>(std::move(context));
  limits_ = {forward.tokens, forward.outputs, options.max_streams, blocks, options.block_tokens};
  return {};
}

Result<void> EngineCore::check(const Request& request) const {
  const int64_t vocab = model_->parts().model->spec().vocab;
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) return Error::user("prompt: must hold at least one token");
  if (prompt >= context_length_) {
    return Error::user(fmt::format("prompt: {} tokens do not leave room for an answer in a context of {}; shorten it or raise the context",
                                   prompt, context_length_));
  }
  for (TokenId token : request.prompt)
    if (token < 0 || token >= vocab) return Error::user(fmt::format("prompt: token {} is outside the vocabulary of {}", token, vocab));
  if (request.max_tokens < -1) return Error::user(fmt::format("max_tokens: must be -1 or more, got {}", request.max_tokens));
  if (request.min_tokens < 0) return Error::user(fmt::format("min_tokens: must be 0 or more, got {}", request.min_tokens));
  MILLRACE_TRY_VOID(validate(request.sampling, vocab));
  if (!request.stop.empty() && !model_->parts().tokenizer) return Error::unsupported("stop: the model has no tokenizer, so there is no text to match");
  if (auto stop = StopMatcher::create(request.stop); !stop.ok()) return stop.error();
  Sequence whole;
  whole.max_total = context_length_;
  if (request.max_tokens >= 0) whole.max_total = std::min(context_length_, prompt + request.max_tokens);
  if (blocks_needed(whole, limits_) > limits_.total_blocks) {
    return Error::resource(fmt::format("KV cache: {} tokens do not fit in {} blocks of {}; ask for fewer tokens or enlarge the cache",
                                       whole.max_total, limits_.total_blocks, limits_.block_tokens));
  }
  return {};
}

Result<std::unique_ptr<LiveStream>> EngineCore::make_stream(RequestId id, Request request) const {
  auto stream = std::make_unique<LiveStream>();
  Sequence& s = stream->sequence;
  s.id = id;
  s.tokens = request.prompt;
  s.prompt_tokens = s.size();
  s.max_total = context_length_;
  if (request.max_tokens >= 0) s.max_total = std::min(context_length_, s.size() + request.max_tokens);
  s.reserved_blocks = blocks_needed(s, limits_);
  const Tokenizer* tokenizer = model_->parts().tokenizer.get();
  SamplerSetup setup;
  if (tokenizer) {
    setup = make_sampler_setup(request, *tokenizer);
    stream->detokenizer = std::make_unique<Detokenizer>(*tokenizer);
  } else {
    setup.options = request.sampling;
  }
  setup.vocab_size = static_cast<int32_t>(model_->parts().model->spec().vocab);
  MILLRACE_TRY(stream->sampler, SamplerChain::create(setup));
  for (TokenId token : request.prompt) stream->sampler->accept(token);
  MILLRACE_TRY(stream->stop, StopMatcher::create(request.stop));
  s.request = std::move(request);
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

void EngineCore::build_batch() {
  batch_.clear();
  for (const PlannedChunk& chunk : plan_.chunks) {
    LiveStream& stream = *find(chunk.request);
    reserve_blocks(stream, chunk.first + chunk.count);
    const Sequence& s = stream.sequence;
    BatchSpan span{batch_.size(), chunk.count, chunk.first, static_cast<int64_t>(batch_.block_tables.size()),
                   static_cast<int64_t>(s.blocks.size())};
    batch_.spans.push_back(span);
    batch_.block_tables.insert(batch_.block_tables.end(), s.blocks.begin(), s.blocks.end());
    for (int64_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
      batch_.tokens.push_back(s.tokens[static_cast<size_t>(i)]);
      batch_.positions.push_back(static_cast<int32_t>(i));
    }
    if (chunk.sample) batch_.output_rows.push_back(static_cast<int32_t>(batch_.size() - 1));
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
  build_batch();
  model_->parts().model->forward(batch_, *context_);
  ++stats_.steps;
  for (const PlannedChunk& chunk : plan_.chunks) {
    Sequence& s = find(chunk.request)->sequence;
    stats_.prompt_tokens += std::max<int64_t>(0, std::min(s.prompt_tokens, chunk.first + chunk.count) - chunk.first);
    s.computed = chunk.first + chunk.count;
  }
  sample_chunks(events);
  return plan_;
}

void EngineCore::sample_chunks(std::vector<TokenEvent>& events) {
  float* logits = context_->logits();
  const int64_t vocab = model_->parts().model->spec().vocab;
  for (const PlannedChunk& chunk : plan_.chunks) {
    if (!chunk.sample) continue;
    LiveStream& stream = *find(chunk.request);
    if (!commit_token(stream, {logits, static_cast<size_t>(vocab)}, events)) std::erase_if(running_, [&](const auto& other) { return other.get() == &stream; });
    logits += vocab;
  }
}

// Chooses and appends one token and tells of it; false when that ended the stream.
bool EngineCore::commit_token(LiveStream& stream, std::span<float> logits, std::vector<TokenEvent>& events) {
  Sequence& s = stream.sequence;
  TokenEvent event;
  event.request = s.id;
  if (s.size() >= s.max_total) {  // nothing was to be generated (max_tokens 0)
    finish(stream, FinishReason::length, std::move(event), events);
    return false;
  }
  const bool wants_logprobs = s.request.sampling.logprobs >= 0;
  if (wants_logprobs) raw_logits_.assign(logits.begin(), logits.end());  // sampling edits the row
  auto chosen = stream.sampler->sample(logits, s.generated(), row_);
  if (!chosen.ok()) {
    event.error = chosen.error();
    finish(stream, FinishReason::error, std::move(event), events);
    return false;
  }
  const TokenId token = *chosen;
  stream.sampler->accept(token);
  event.token = token;
  if (wants_logprobs) {
    Logprobs logprobs = compute_logprobs(raw_logits_, token, s.request.sampling.logprobs);
    event.logprob = logprobs.chosen;
    event.top_logprobs = std::move(logprobs.top);
  }
  s.tokens.push_back(token);
  ++stats_.generated_tokens;
  if (stream.first_token == 0) stream.first_token = clock_->now_ns();

  const Tokenizer* tokenizer = model_->parts().tokenizer.get();
  FinishReason reason = FinishReason::none;
  if (tokenizer && tokenizer->is_eog(token) && !s.request.ignore_eos) {
    reason = FinishReason::stop;
  } else if (stream.detokenizer) {
    event.text = stream.stop.push(stream.detokenizer->push(token));
    if (stream.stop.stopped()) reason = FinishReason::stop;
  }
  if (reason == FinishReason::none && s.size() >= s.max_total) reason = FinishReason::length;
  if (reason == FinishReason::none) {
    events.push_back(std::move(event));
    return true;
  }
  finish(stream, reason, std::move(event), events);
  return false;
}

void EngineCore::finish(LiveStream& stream, FinishReason reason, TokenEvent event, std::vector<TokenEvent>& events) {
  Sequence& s = stream.sequence;
  event.request = s.id;
  event.finish = reason;
  if (stream.detokenizer && reason != FinishReason::error) {
    event.text += stream.stop.push(stream.detokenizer->flush());
    event.text += stream.stop.flush();
  }
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
  stats.scratch_bytes = context_->bytes();
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
