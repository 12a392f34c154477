#include "engine/cpu_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu.h"
#include "base/memory.h"
#include "engine/language_model.h"
#include "kv/tiers/memory_tier.h"
#include "sampling/logprobs.h"
#include "sampling/schema.h"
#include "sampling/setup.h"

namespace millrace {
namespace {

constexpr int64_t kDefaultKvTokens = 65536;

// Blocks for `wanted` tokens, or for fewer, at least `least`, where memory is short.
Result<int64_t> blocks_that_fit(const KvLayout& layout, int64_t wanted, int64_t least) {
  const auto blocks_of = [&](int64_t tokens) { return (tokens + layout.block_tokens - 1) / layout.block_tokens; };
  const int64_t block_bytes = std::max<int64_t>(1, layout.block_bytes());
  if (blocks_of(wanted) > INT64_MAX / block_bytes) return blocks_of(wanted);  // which KvPool refuses
  const AvailableMemory available = available_memory();
  const int64_t fit = available.bytes / block_bytes;
  if (blocks_of(wanted) <= fit) return blocks_of(wanted);
  MILLRACE_TRY_VOID(check_memory(blocks_of(least) * block_bytes, fmt::format("KV cache of {} tokens", least),
                                 "lower the context, the KV tokens or their format", available));
  return std::max(blocks_of(least), fit);
}

}  // namespace

Result<std::unique_ptr<Executor>> CpuExecutor::create(std::shared_ptr<const LanguageModel> model, const EngineOptions& options) {
  auto executor = std::unique_ptr<CpuExecutor>(new CpuExecutor());
  executor->model_ = std::move(model);
  executor->pool_ = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : available_cores());
  MILLRACE_TRY_VOID(executor->size_memory(options));
  return std::unique_ptr<Executor>(std::move(executor));
}

Result<void> CpuExecutor::size_memory(const EngineOptions& options) {
  const Model& model = *model_->parts().model;
  limits_.context = options.context > 0 ? options.context : model.context();
  if (limits_.context > model.context()) {
    return Error::user(fmt::format("context: the model was loaded for {} tokens, {} asked for", model.context(), limits_.context));
  }
  int64_t kv_tokens = options.kv_tokens > 0 ? options.kv_tokens
                                            : std::max(limits_.context, std::min(options.max_streams * limits_.context, kDefaultKvTokens));
  const Format* format = find_format(options.kv_format);
  if (!format || !model_->parts().kernels.find_attention(format)) {
    std::string known;
    for (const auto& kernel : model_->parts().kernels.attention) known += fmt::format("{}{}", known.empty() ? "" : ", ", kernel.kv_format->name);
    return Error::unsupported(fmt::format("KV format '{}'; supported: {}", options.kv_format, known));
  }
  KvLayout layout{format, options.block_tokens, model.kv_layers()};
  const int64_t least = options.kv_tokens > 0 ? kv_tokens : limits_.context;  // a default gives way, a wish does not
  MILLRACE_TRY_VOID(layout.check());
  MILLRACE_TRY(const int64_t blocks, blocks_that_fit(layout, kv_tokens, least));
  MILLRACE_TRY(auto pool, KvPool::create(std::move(layout), blocks));
  kv_ = std::make_unique<KvPool>(std::move(pool));

  ForwardLimits forward;
  forward.tokens = std::max(options.batch_tokens, options.max_streams);
  forward.outputs = std::min(forward.tokens, options.max_streams);
  forward.context = limits_.context;
  MILLRACE_TRY(auto context, ForwardContext::create(model.spec(), model_->parts().kernels, *pool_, *kv_, forward));
  context_ = std::make_unique<ForwardContext>(std::move(context));
  limits_.tokens = forward.tokens;
  limits_.outputs = forward.outputs;
  limits_.scratch_bytes = context_->bytes();
  batch_.tokens.reserve(static_cast<size_t>(forward.tokens));
  batch_.positions.reserve(static_cast<size_t>(forward.tokens));
  batch_.spans.reserve(static_cast<size_t>(options.max_streams));
  batch_.output_rows.reserve(static_cast<size_t>(forward.outputs));
  batch_.block_tables.reserve(static_cast<size_t>(blocks));
  return {};
}

Result<std::unique_ptr<KvTier>> CpuExecutor::make_tier(int64_t tokens) { return make_memory_tier(*kv_, tokens); }

Result<void> CpuExecutor::check(const Request& request) const {
  const int64_t vocab = model_->parts().model->spec().vocab;
  for (TokenId token : request.prompt)
    if (token < 0 || token >= vocab) return Error::user(fmt::format("prompt: token {} is outside the vocabulary of {}", token, vocab));
  MILLRACE_TRY_VOID(validate(request.sampling, vocab));
  if (!request.stop.empty() && !model_->parts().tokenizer) return Error::unsupported("stop: the model has no tokenizer, so there is no text to match");
  if (auto stop = StopMatcher::create(request.stop); !stop.ok()) return stop.error();
  return {};
}

Result<void> CpuExecutor::begin(LiveStream& stream) const {
  const Request& request = stream.sequence.request;
  const Tokenizer* tokenizer = model_->parts().tokenizer.get();
  SamplerSetup setup;
  if (tokenizer) {
    setup = make_sampler_setup(request, *tokenizer);
    stream.detokenizer = std::make_unique<Detokenizer>(*tokenizer);
  } else {
    setup.options = request.sampling;
  }
  setup.vocab_size = static_cast<int32_t>(model_->parts().model->spec().vocab);
  MILLRACE_TRY(stream.sampler, SamplerChain::create(setup));
  for (TokenId token : request.prompt) stream.sampler->accept(token);
  MILLRACE_TRY(stream.stop, StopMatcher::create(request.stop));
  return {};
}

void CpuExecutor::forward(std::span<const StepWork> work) {
  batch_.clear();
  for (const StepWork& item : work) {
    const PlannedChunk& chunk = item.chunk;
    const Sequence& s = item.stream->sequence;
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
  model_->parts().model->forward(batch_, *context_);
}

Result<bool> CpuExecutor::choose(LiveStream& stream, int64_t row, TokenEvent& event) {
  const auto vocab = static_cast<size_t>(model_->parts().model->spec().vocab);
  const std::span<float> logits(context_->logits() + static_cast<size_t>(row) * vocab, vocab);
  const Request& request = stream.sequence.request;
  const bool wants_logprobs = request.sampling.logprobs >= 0;
  if (wants_logprobs) raw_logits_.assign(logits.begin(), logits.end());  // sampling edits the row
  MILLRACE_TRY(event.token, stream.sampler->sample(logits, stream.sequence.generated(), row_));
  stream.sampler->accept(event.token);
  if (wants_logprobs) {
    Logprobs logprobs = compute_logprobs(raw_logits_, event.token, request.sampling.logprobs);
    event.logprob = logprobs.chosen;
    event.top_logprobs = std::move(logprobs.top);
  }
  const Tokenizer* tokenizer = model_->parts().tokenizer.get();
  if (tokenizer && tokenizer->is_eog(event.token) && !request.ignore_eos) return true;
  if (!stream.detokenizer) return false;
  event.text = stream.stop.push(stream.detokenizer->push(event.token));
  if (stream.stop.stopped()) event.stopped_by = stream.stop.matched();
  return stream.stop.stopped();
}

void CpuExecutor::flush(LiveStream& stream, TokenEvent& event) {
  if (!stream.detokenizer) return;
  event.text += stream.stop.push(stream.detokenizer->flush());
  event.text += stream.stop.flush();
}

}  // namespace millrace
