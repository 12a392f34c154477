#include "run/simulated_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/forward_switches.h"
#include "run/compatibility/collect.h"
#include "run/kv_places.h"
#include "run/window_blocks.h"

namespace millrace {
namespace {

constexpr int64_t kHeadDim = 128;  // for which formats are compared

// Of a layer: one, unless it shows in what is stored.
int64_t stored_heads(const EvictionRule* rule, const SimulatedModel& model) {
  return rule && rule->by_layer() ? model.kv_heads : 1;
}

// The layers of an engine with these options.
std::vector<KvLayer> simulated_layers(const EvictionRule* rule, const SimulatedModel& model) {
  const KvLayer layer{.kv_heads = stored_heads(rule, model), .head_dim = kHeadDim, .window = model.window};
  return std::vector<KvLayer>(static_cast<size_t>(model.layers), layer);
}

// The facts of a simulated engine, which go together. Errors: user, unsupported.
Result<Facts> simulated_facts(const EngineOptions& options, const KvFormats& formats,
                              const std::vector<KvLayer>& layers, const SimulatedModel& model) {
  const std::string who = "a simulation";
  Facts facts;
  facts.add(facts::kSimulates, who);
  facts.add(facts::kNoGates, who);
  facts.add_if(model.window > 0, facts::kSimulatedWindows, who);
  add_layers(layers, options.context, facts);
  MILLRACE_TRY_VOID(add_engine({options, formats, layers, options.context}, facts));
  facts.add_if(facts.has(facts::kPatternRows), facts::kSimulatedRows, who);
  MILLRACE_TRY_VOID(resolve_engine(options, facts));
  return facts;
}

// Tokens of F16 in whose memory the raw rows of a codec fit, of all streams that the engine has room for.
Result<int64_t> tail_tokens(const EngineOptions& options, const KvLayout& layout) {
  const int64_t streams = std::max(options.max_streams, options.resident_streams) * (has_tier(options) ? 2 : 1);
  const int64_t tails = streams * layout.tail_tokens;
  if (options.kv_tokens > 0 && tails >= options.kv_tokens)
    return Error::user(fmt::format(
        "KV cache: {} tokens of F16 have no room beside the tails of KV format {}, {} tokens for each of {} "
        "streams; enlarge it or let fewer streams run (--max-streams)",
        options.kv_tokens, layout.format_name(), layout.tail_tokens, streams));
  return tails;
}

// The share of keys and values in the bytes of a block, beside what a pattern stores.
double own_share(const KvLayout& layout) {
  int64_t own = 0, all = 0;
  for (const KvLayer& layer : layout.layers) {
    all += layout.block_bytes(layer);
    if (!layer.side) own += layout.block_bytes(layer);
  }
  return all > 0 ? static_cast<double>(own) / static_cast<double>(all) : 1;
}

// The same blocks without bytes. Layers that share them are one.
void drop_bytes(KvLayout& layout) {
  layout.codec = nullptr;
  layout.tail_tokens = 0;
  layout.value_format = nullptr;
  layout.residual_below = 0;
  if (!layout.divided()) layout.layers.resize(1);
  for (KvLayer& layer : layout.layers) layer = {.kv_heads = layer.kv_heads, .window = layer.window, .simulated = true};
}

}  // namespace

Result<std::unique_ptr<SimulatedExecutor>> SimulatedExecutor::create(std::unique_ptr<CostModel> cost,
                                                                     ManualClock& clock, const EngineOptions& options,
                                                                     const SimulatedModel& model) {
  auto executor = std::unique_ptr<SimulatedExecutor>(new SimulatedExecutor(clock));
  if (options.context < 1) return Error::user("context: a simulation must be given one");
  MILLRACE_TRY(const auto rule, make_eviction_rule(options.evictor));
  if (model.layers < 1) return Error::user(fmt::format("layers: must be at least 1, got {}", model.layers));
  if (model.window < 0 || (model.window > 0 && rule))
    return Error::user(fmt::format("window: must be 0 or more, and 0 with an evictor, got {}", model.window));
  if (model.kv_heads < 1) return Error::user(fmt::format("KV heads: must be at least 1, got {}", model.kv_heads));
  MILLRACE_TRY(const KvFormats formats, find_kv_formats(options.kv_format, make_kernel_table(Isa::ref)));
  if (!formats.keys) return Error::unsupported(fmt::format("KV format '{}' is unknown", options.kv_format));
  const std::vector<KvLayer> layers = simulated_layers(rule.get(), model);
  MILLRACE_TRY(executor->facts_, simulated_facts(options, formats, layers, model));
  MILLRACE_TRY(KvLayout layout, engine_layout(formats, options, layers, options.context));
  MILLRACE_TRY(const ForwardSwitches switches, make_forward_switches(options.kernels));
  const int64_t f16_bytes = model.layers * stored_heads(rule.get(), model) * 2 * kHeadDim * 2;
  const double kv_ratio = static_cast<double>(layout.bytes_per_token()) / static_cast<double>(f16_bytes);
  const double read_ratio = kv_ratio * own_share(layout);
  if (switches.pattern) {
    MILLRACE_TRY(executor->time_.pattern, PatternSteps::create(switches.pattern,
                                                               {.layers = model.layers,
                                                                .kv_heads = model.kv_heads,
                                                                .head_dim = kHeadDim,
                                                                .token_bytes = read_ratio * 2 * kHeadDim * 2},
                                                               options.context, layout.block_tokens));
  }
  executor->layers_ = model.layers;
  const std::string codec = layout.codec_name();
  executor->shares_prefixes_ = layout.prefixes_shared();
  executor->time_.cost = make_scaled_kv_cost(std::move(cost), kv_ratio, read_ratio);
  MILLRACE_TRY(const int64_t tails, tail_tokens(options, layout));
  drop_bytes(layout);
  const int64_t kv_tokens = options.kv_tokens > 0 ? SimulatedKv::tokens_for(options.kv_tokens - tails, kv_ratio)
                                                  : longest_demand(rule.get(), layout, options.context);
  const int64_t blocks = (kv_tokens + layout.block_tokens - 1) / layout.block_tokens * layout.tables();
  MILLRACE_TRY(auto pool, KvPool::create(std::move(layout), blocks, {.evicts = rule != nullptr}));
  executor->limits_ = {options.context, std::max(options.batch_tokens, options.max_streams), options.max_streams, 0};
  executor->limits_.layers = model.layers;
  executor->limits_.kv_heads = model.kv_heads;
  executor->limits_.reads_tables = false;  // of long streams, copying them would take longer than all else in a step
  executor->limits_.prompts_apart = executor->time_.pattern && executor->time_.pattern->has_phase();
  executor->start(std::move(pool), kv_ratio, codec);
  MILLRACE_TRY_VOID(executor->documents_->keep_rows(options));
  return executor;
}

void SimulatedExecutor::start(KvPool pool, double kv_ratio, const std::string& codec) {
  kv_ = std::make_unique<KvPool>(std::move(pool));
  home_.emplace(*kv_, time_, kv_ratio);
  documents_.emplace(SimulatedDocuments::Machine{
      .kv = *kv_, .time = time_, .codec = codec, .layers = layers_, .tokens = limits_.tokens});
  set_parts({.home = &*home_, .chooser = &chooser_, .documents = &*documents_, .cost = time_.cost.get()});
}

Result<void> SimulatedExecutor::check(const Request& request) const {
  for (TokenId token : request.prompt)
    if (token < 0 || token >= kSimulatedVocab)
      return Error::user(fmt::format("prompt: token {} is outside the vocabulary of {}", token, kSimulatedVocab));
  return {};
}

void SimulatedExecutor::forward(const StepInput& input, StepOutput& output) {
  output.clear();
  StepShape shape;
  for (size_t i = 0; i < input.chunks.size(); ++i) {
    const StepChunk& chunk = input.chunks[i];
    time_.add(chunk.keys, chunk.tokens, chunk.outputs, shape, chunk.answers);
    TokenEviction* const eviction = input.references[i].eviction;
    if (!eviction || !eviction->rule().evictor->needs_sums()) continue;
    for (int64_t layer = 0; layer < eviction->layers(); ++layer)
      eviction->tokens(layer).mass(chunk.first + chunk.tokens - eviction->evicted(layer));
  }
  time_.advance(time_.cost->step_seconds(shape));
}

}  // namespace millrace
