#include "run/executors/simulated_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "run/compatibility/collect.h"
#include "run/plan/state_slots.h"
#include "run/plan/window_blocks.h"

namespace millrace {
namespace {

constexpr int64_t kHeadDim = 128;  // for which formats are compared
constexpr int64_t kMostStateBytes = int64_t{1} << 33;

// Of a layer: one, unless it shows in what is stored.
int64_t stored_heads(const EvictionRule* rule, const SimulatedModel& model) {
  return rule && rule->by_layer() ? model.kv_heads : 1;
}

// The layers of an engine with these options.
std::vector<KvLayer> simulated_layers(const EvictionRule* rule, const SimulatedModel& model) {
  const KvLayer layer{.kv_heads = stored_heads(rule, model), .head_dim = kHeadDim, .window = model.window};
  std::vector<KvLayer> layers(static_cast<size_t>(model.layers), layer);
  layers.front().state_values = model.state_bytes / static_cast<int64_t>(sizeof(float));
  return layers;
}

// The facts of a simulated engine, which go together. Errors: user, unsupported.
Result<Facts> simulated_facts(const EnginePlan& plan, const std::vector<KvLayer>& layers, const SimulatedModel& model) {
  const std::string who = "a simulation";
  Facts facts;
  facts.add(facts::kSimulates, who);
  facts.add(facts::kNoGates, who);
  facts.add_if(model.window > 0, facts::kSimulatedWindows, who);
  facts.add_if(model.state_bytes > 0, facts::kSimulatedStates, who);
  add_layers(layers, plan.options.context, facts);
  add_engine(plan, layers, plan.options.context, facts);
  facts.add_if(facts.has(facts::kPatternRows), facts::kSimulatedRows, who);
  MILLRACE_TRY_VOID(resolve_engine(plan, facts));
  return facts;
}

// Tokens of F16 in whose memory the raw rows of a codec fit, of all streams that the engine has room for.
Result<int64_t> tail_tokens(const EnginePlan& plan, const KvLayout& layout) {
  const EngineOptions& options = plan.options;
  const int64_t streams = std::max(options.max_streams, options.resident_streams) * (plan.tier ? 2 : 1);
  const int64_t tails = streams * layout.tail_tokens;
  if (options.kv_tokens > 0 && tails >= options.kv_tokens)
    return Error::user(fmt::format(
        "KV cache: {} tokens of F16 have no room next to the tails of KV format {}, {} tokens for each of {} "
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

// Leaves the blocks and drops their bytes. Layers that share blocks become one layer, and a state one value.
void drop_bytes(KvLayout& layout) {
  layout.codec = nullptr;
  layout.tail_tokens = 0;
  layout.value_format = nullptr;
  layout.residual_below = 0;
  if (!layout.divided()) layout.layers.resize(1);
  for (KvLayer& layer : layout.layers)
    layer = {.kv_heads = layer.kv_heads,
             .state_values = std::min<int64_t>(layer.state_values, 1),
             .window = layer.window,
             .simulated = true};
}

}  // namespace

Result<std::unique_ptr<SimulatedExecutor>> SimulatedExecutor::create(std::unique_ptr<CostModel> cost,
                                                                     ManualClock& clock, const EngineOptions& options,
                                                                     const SimulatedModel& model) {
  MILLRACE_TRY(const EnginePlan plan, make_plan(options));
  return create(std::move(cost), clock, plan, model);
}

Result<EnginePlan> SimulatedExecutor::make_plan(const EngineOptions& options) {
  MILLRACE_TRY(EnginePlan plan, EnginePlan::create(options, make_kernel_table(Isa::ref)));
  if (!plan.formats.keys) return Error::unsupported(fmt::format("KV format '{}' is unknown", options.kv_format));
  return plan;
}

Result<std::unique_ptr<SimulatedExecutor>> SimulatedExecutor::create(std::unique_ptr<CostModel> cost,
                                                                     ManualClock& clock, const EnginePlan& plan,
                                                                     const SimulatedModel& model) {
  auto executor = std::unique_ptr<SimulatedExecutor>(new SimulatedExecutor(clock));
  const EngineOptions& options = plan.options;
  const EvictionRule* rule = plan.evictor.get();
  if (options.context < 1) return Error::user("context: a simulation must be given one");
  if (model.layers < 1) return Error::user(fmt::format("layers: must be at least 1, got {}", model.layers));
  if (model.window < 0 || (model.window > 0 && rule))
    return Error::user(fmt::format("window: must be 0 or more, and 0 with an evictor, got {}", model.window));
  if (model.state_bytes < 0 || model.state_bytes > kMostStateBytes)
    return Error::user(
        fmt::format("state bytes: must be between 0 and {}, got {}", kMostStateBytes, model.state_bytes));
  if (model.kv_heads < 1) return Error::user(fmt::format("KV heads: must be at least 1, got {}", model.kv_heads));
  const std::vector<KvLayer> layers = simulated_layers(rule, model);
  MILLRACE_TRY(executor->facts_, simulated_facts(plan, layers, model));
  MILLRACE_TRY(KvLayout layout, engine_layout(plan, layers, options.context));
  const int64_t f16_bytes = model.layers * stored_heads(rule, model) * 2 * kHeadDim * 2;
  const double kv_ratio = static_cast<double>(layout.bytes_per_token()) / static_cast<double>(f16_bytes);
  const double read_ratio = kv_ratio * own_share(layout);
  if (plan.switches.pattern) {
    MILLRACE_TRY(executor->time_.pattern, PatternSteps::create(plan.switches.pattern,
                                                               {.layers = model.layers,
                                                                .kv_heads = model.kv_heads,
                                                                .head_dim = kHeadDim,
                                                                .token_bytes = read_ratio * 2 * kHeadDim * 2},
                                                               options.context, layout.block_tokens));
  }
  executor->layers_ = model.layers;
  const std::string codec = layout.codec_name();
  const int64_t streams = std::max(options.max_streams, options.resident_streams) * (plan.tier ? 2 : 1);
  MILLRACE_TRY(const int64_t copies, planned_state_copies(options, layout, streams, 0));
  const int64_t marks = layout.recurrent() ? planned_draft_states(options, plan.longest_draft()) : 0;
  executor->shares_prefixes_ = layout.prefixes_shared() || copies > 0;
  executor->time_.cost = make_scaled_kv_cost(std::move(cost), kv_ratio, read_ratio);
  MILLRACE_TRY(const int64_t tails, tail_tokens(plan, layout));
  drop_bytes(layout);
  const int64_t kv_tokens = options.kv_tokens > 0 ? SimulatedKv::tokens_for(options.kv_tokens - tails, kv_ratio)
                                                  : longest_demand(rule, layout, options.context);
  const int64_t blocks = (kv_tokens + layout.block_tokens - 1) / layout.block_tokens * layout.tables();
  MILLRACE_TRY(
      auto pool,
      KvPool::create(std::move(layout), blocks,
                     {.states = streams + marks, .marks = marks, .copies = copies, .evicts = rule != nullptr}));
  executor->limits_ = {options.context, std::max(options.batch_tokens, options.max_streams), options.max_streams, 0};
  executor->limits_.layers = model.layers;
  executor->limits_.kv_heads = model.kv_heads;
  executor->limits_.reads_tables = false;  // of long streams, copying them would take longer than all else in a step
  executor->limits_.prompts_apart =
      (executor->time_.pattern && executor->time_.pattern->has_phase()) || plan.switches.npu;
  executor->start(std::move(pool), kv_ratio, codec);
  MILLRACE_TRY_VOID(executor->documents_->keep_rows(plan));
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
    const ExitGate* const exit = input.references[i].exit;
    const double depth = exit ? static_cast<double>(exit->stored(layers_)) / static_cast<double>(layers_) : 1;
    time_.add(
        {.first = chunk.keys, .count = chunk.tokens, .outputs = chunk.outputs, .depth = depth, .answer = chunk.answers},
        shape);
    TokenEviction* const eviction = input.references[i].eviction;
    if (!eviction || !eviction->rule().evictor->needs_sums()) continue;
    for (int64_t layer = 0; layer < eviction->layers(); ++layer)
      eviction->tokens(layer).mass(chunk.first + chunk.tokens - eviction->evicted(layer));
  }
  time_.advance(time_.cost->step_seconds(shape));
}

}  // namespace millrace
