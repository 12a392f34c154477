#include "run/simulated_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/philox.h"
#include "models/forward_switches.h"
#include "run/context_check.h"
#include "run/evictor_check.h"
#include "run/kv_places.h"
#include "run/simulated_store.h"
#include "run/window_blocks.h"

namespace millrace {
namespace {

int64_t nanoseconds(double seconds) { return std::max<int64_t>(1, static_cast<int64_t>(std::min(seconds, 1e9) * 1e9)); }

constexpr int64_t kHeadDim = 128;  // for which formats are compared

// Of a layer: one, unless it shows in what is stored.
int64_t stored_heads(const EvictionRule* rule, const SimulatedModel& model) {
  return rule && rule->by_layer() ? model.kv_heads : 1;
}

// The layout of an engine with these options.
Result<KvLayout> planned_layout(const EngineOptions& options, const SimulatedModel& model) {
  MILLRACE_TRY(const KvFormats formats, find_kv_formats(options.kv_format, make_kernel_table(Isa::ref)));
  if (!formats.keys) return Error::unsupported(fmt::format("KV format '{}' is unknown", options.kv_format));
  MILLRACE_TRY(const auto rule, make_eviction_rule(options.evictor));
  const KvLayer layer{.kv_heads = stored_heads(rule.get(), model), .head_dim = kHeadDim, .window = model.window};
  MILLRACE_TRY(
      KvLayout layout,
      engine_layout(formats, options, std::vector<KvLayer>(static_cast<size_t>(model.layers), layer), options.context));
  if (!rule) return layout;
  MILLRACE_TRY_VOID(layout.by_layer
                        ? check_layer_blocks(options, *rule, layout, model.layers * layout.heads_apart, options.context)
                        : check_evictor_layout(*rule, layout, options.context));
  return layout;
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
    if (layer.beside < 0) own += layout.block_bytes(layer);
  }
  return all > 0 ? static_cast<double>(own) / static_cast<double>(all) : 1;
}

// Tokens before `token` that a chunk of the stream's context sees which begins with it.
int64_t seen_before(const ContextPlan& context, int64_t token) {
  const ContextPart* part = part_of(context, token);
  const auto& sees = part ? part->sees : context.sees;
  if (!part && (!context.behind(token) || sees.empty())) return token;
  int64_t seen = 0;
  for (const KeySegment& segment : sees) seen += std::max<int64_t>(0, std::min(segment.end, token) - segment.begin);
  return seen;
}

// The same blocks without bytes. Layers that share them are one.
void drop_bytes(KvLayout& layout) {
  layout.codec = nullptr;
  layout.tail_tokens = 0;
  layout.value_format = nullptr;
  layout.rest_below = 0;
  if (!layout.by_layer) layout.layers.resize(1);
  for (KvLayer& layer : layout.layers) layer = {.kv_heads = layer.kv_heads, .window = layer.window, .simulated = true};
}

}  // namespace

class SimulatedExecutor::Tier final : public KvTier {
 public:
  Tier(SimulatedExecutor& executor, int64_t tokens) : executor_(executor), free_tokens_(tokens) {}

  int64_t free_tokens() const override { return free_tokens_; }
  Result<TierTicket> put(std::span<const BlockId>, int64_t tokens) override {
    if (tokens > free_tokens_)
      return Error::resource(fmt::format("KV tier: {} tokens do not fit, {} are free", tokens, free_tokens_));
    free_tokens_ -= tokens;
    entries_[++last_] = {tokens, move(tokens)};
    return last_;
  }
  Result<void> get(TierTicket ticket, std::span<const BlockId>) override {
    auto found = entries_.find(ticket);
    if (found == entries_.end()) return Error::internal("KV tier: no such ticket");
    found->second.ready_ns = move(found->second.tokens);
    return {};
  }
  TierState poll(TierTicket ticket) override {
    auto found = entries_.find(ticket);
    if (found == entries_.end()) return TierState::failed;
    return executor_.clock_.now_ns() >= found->second.ready_ns ? TierState::ready : TierState::busy;
  }
  void erase(TierTicket ticket) override {
    auto found = entries_.find(ticket);
    if (found == entries_.end()) return;
    free_tokens_ += found->second.tokens;
    entries_.erase(found);
  }

 private:
  struct Entry {
    int64_t tokens = 0;
    int64_t ready_ns = 0;
  };
  int64_t move(int64_t tokens) {
    int64_t& bus = executor_.bus_free_ns_;
    bus = std::max(bus, executor_.clock_.now_ns()) + nanoseconds(executor_.cost_->swap_seconds(tokens));
    return bus;
  }

  SimulatedExecutor& executor_;
  int64_t free_tokens_;
  TierTicket last_ = 0;
  std::unordered_map<TierTicket, Entry> entries_;
};

Result<std::unique_ptr<SimulatedExecutor>> SimulatedExecutor::create(std::unique_ptr<CostModel> cost,
                                                                     ManualClock& clock, const EngineOptions& options,
                                                                     const SimulatedModel& model) {
  auto executor = std::unique_ptr<SimulatedExecutor>(new SimulatedExecutor(clock));
  if (options.context < 1) return Error::user("context: a simulation must be given one");
  if (!options.drafter.empty())
    return Error::unsupported("drafter: simulated tokens are random, so that no draft would ever be right");
  MILLRACE_TRY(const auto rule, make_eviction_rule(options.evictor));
  if (model.layers < 1) return Error::user(fmt::format("layers: must be at least 1, got {}", model.layers));
  if (model.window < 0 || (model.window > 0 && rule))
    return Error::user(fmt::format("window: must be 0 or more, and 0 with an evictor, got {}", model.window));
  if (model.kv_heads < 1) return Error::user(fmt::format("KV heads: must be at least 1, got {}", model.kv_heads));
  MILLRACE_TRY(KvLayout layout, planned_layout(options, model));
  MILLRACE_TRY(const ForwardSwitches switches, make_forward_switches(options.kernels));
  const int64_t f16_bytes = model.layers * stored_heads(rule.get(), model) * 2 * kHeadDim * 2;
  executor->kv_ratio_ = static_cast<double>(layout.bytes_per_token()) / static_cast<double>(f16_bytes);
  const double read_ratio = executor->kv_ratio_ * own_share(layout);
  if (switches.pattern) {
    if (model.window > 0)
      return Error::unsupported(fmt::format("attention {}: is simulated without windows", switches.pattern->text()));
    if (rule) MILLRACE_TRY_VOID(check_evictor_pattern(*rule, switches.attention.pattern, layout));
    MILLRACE_TRY(executor->pattern_, PatternSteps::create(switches.pattern,
                                                          {.layers = model.layers,
                                                           .kv_heads = model.kv_heads,
                                                           .head_dim = kHeadDim,
                                                           .token_bytes = read_ratio * 2 * kHeadDim * 2},
                                                          options.context, layout.block_tokens));
  }
  executor->layers_ = model.layers;
  executor->codec_ = layout.codec_name();
  executor->shares_prefixes_ = layout.prefixes_shared();
  executor->cost_ = make_scaled_kv_cost(std::move(cost), executor->kv_ratio_, read_ratio);
  MILLRACE_TRY(const int64_t tails, tail_tokens(options, layout));
  drop_bytes(layout);
  MILLRACE_TRY_VOID(executor->keep_rows(options, layout));
  const int64_t kv_tokens = options.kv_tokens > 0 ? executor->tokens_for(options.kv_tokens - tails)
                                                  : longest_demand(rule.get(), layout, options.context);
  const int64_t blocks = (kv_tokens + layout.block_tokens - 1) / layout.block_tokens * layout.tables();
  MILLRACE_TRY(auto pool, KvPool::create(std::move(layout), blocks, {.evicts = rule != nullptr}));
  executor->kv_ = std::make_unique<KvPool>(std::move(pool));
  executor->limits_ = {options.context, std::max(options.batch_tokens, options.max_streams), options.max_streams, 0};
  executor->limits_.prompts_apart = executor->pattern_ && executor->pattern_->has_phase();
  return executor;
}

// As an engine has them, beside a KV cache that is encoded.
Result<void> SimulatedExecutor::keep_rows(const EngineOptions& options, const KvLayout& layout) {
  MILLRACE_TRY(const auto context, make_document_context(options.document_context));
  if (!context || context->encoder() || codec_.empty()) return {};
  KvLayout rows{.format = layout.format, .block_tokens = KeptRows::kBlockTokens, .layers = {layout.layers.front()}};
  const int64_t tokens = options.document_tokens > 0 ? options.document_tokens : options.context;
  MILLRACE_TRY(auto pool, KvPool::create(std::move(rows), KeptRows::blocks(tokens)));
  rows_ = std::make_unique<KvPool>(std::move(pool));
  kept_.emplace(*rows_, options.prefix_cache);
  return {};
}

Result<std::unique_ptr<KvTier>> SimulatedExecutor::make_tier(int64_t tokens) {
  return std::unique_ptr<KvTier>(std::make_unique<Tier>(*this, tokens_for(tokens)));
}

Result<std::unique_ptr<PrefixStore>> SimulatedExecutor::make_store(const EngineOptions& options) {
  if (!options.kv_store.empty()) return Error::unsupported("KV store: a simulation has one of a size in tokens only");
  if (options.kv_ssd_fetch < 1) return Error::unsupported("KV store: a simulation fetches all of a prompt's blocks");
  const int64_t block_tokens = kv_->layout().block_tokens, blocks = tokens_for(options.kv_ssd_size) / block_tokens;
  if (blocks < 1)
    return Error::user(
        fmt::format("KV store: {} tokens are less than a block of {}", options.kv_ssd_size, block_tokens));
  return make_simulated_store(clock_, *cost_, blocks, block_tokens, disk_free_ns_);
}

Result<void> SimulatedExecutor::check(const Request& request) const {
  if (request.beams > 1) return Error::unsupported("beams: simulated tokens have no log-probabilities");
  if (request.reader) return Error::unsupported("reader: a simulation computes nothing that it could read");
  if (request.constraint.kind != Constraint::Kind::none)
    return Error::unsupported("constraint: a simulation writes no text");
  for (TokenId token : request.prompt)
    if (token < 0 || token >= kSimulatedVocab)
      return Error::user(fmt::format("prompt: token {} is outside the vocabulary of {}", token, kSimulatedVocab));
  return {};
}

Result<void> SimulatedExecutor::check_evictor(const EvictionRule& rule) const {
  if (rule.evictor->gated()) return Executor::check_evictor(rule);
  MILLRACE_TRY_VOID(check_evictor_pool(rule, *kv_, limits_.context));
  const KvLayout& layout = kv_->layout();
  return rule.by_layer() ? rule.evictor->check_layers(layers_, layout.heads() / layers_) : Result<void>();
}

Result<void> SimulatedExecutor::check_context(bool) const {
  if (kv_->by_layer()) return Error::unsupported(kBlocksByLayer);
  if (kv_->gives_back()) return Error::unsupported("context: is simulated without layers that see a window");
  if (!codec_.empty() && !kept_) return context_needs_rows(codec_);
  if (pattern_ && pattern_->stores_rows())
    return Error::unsupported("context: is simulated without attention patterns that store rows; use a static one");
  return {};
}

void SimulatedExecutor::add(int64_t first, int64_t count, int64_t outputs, StepShape& shape, bool answer) {
  pattern_ ? pattern_->add(first, count, outputs, answer, shape) : shape.add(first, count, outputs);
}

bool SimulatedExecutor::hold_part(LiveStream& stream, const ContextPart& part, int64_t& budget) {
  return kept_->hold(stream, part, budget, limits_.tokens, [this](const RowsLease&, int64_t first, int64_t count) {
    StepShape shape;
    add(first, count, 0, shape);
    clock_.advance_ns(nanoseconds(cost_->step_seconds(shape)));
  });
}

// As refresh_parts() computes them: of a share, all tokens in the layers before the one that is compared, and the
// chosen ones in the others.
void SimulatedExecutor::refresh(const LiveStream& stream) {
  StepShape whole, first_layer, others;
  for (const size_t index : stream.stale) {
    const ContextPart& part = stream.context.parts[index];
    const int64_t tokens = part.end - part.begin;
    if (part.fresh_first > 0) add(part.begin, part.fresh_first, 0, whole);
    if (part.fresh_share <= 0) continue;
    add(part.begin, tokens, 0, first_layer);
    StepShape all;
    add(part.begin, tokens, 0, all);
    const auto chosen = static_cast<int64_t>(std::ceil(part.fresh_share * static_cast<double>(tokens)));
    others.tokens += chosen;
    others.keys += all.keys;
    others.pairs += all.pairs * static_cast<double>(chosen) / static_cast<double>(tokens);
  }
  const double share = layers_ > 1 ? 1.0 / static_cast<double>(layers_) : 0;  // of the first layer
  double seconds = whole.tokens > 0 ? cost_->step_seconds(whole) : 0;
  if (others.tokens > 0)
    seconds += share * cost_->step_seconds(first_layer) + (1 - share) * cost_->step_seconds(others);
  clock_.advance_ns(nanoseconds(seconds));
}

void SimulatedExecutor::forward(std::span<const StepWork> work) {
  StepShape shape;
  for (const StepWork& item : work) {
    const int64_t stored = item.chunk.first - item.stream->sequence.mean_left_out();
    const ContextPlan& context = item.stream->context;
    const int64_t left_out = item.chunk.first - stored;
    add(context.empty() ? stored : seen_before(context, item.chunk.first) - left_out, item.chunk.count,
        item.chunk.outputs(), shape, item.chunk.first >= item.stream->sequence.prompt_tokens);
    TokenEviction* const eviction = item.stream->eviction.get();
    if (!eviction || !eviction->rule().evictor->needs_sums()) continue;
    for (int64_t layer = 0; layer < eviction->layers(); ++layer)
      eviction->tokens(layer).mass(item.chunk.first + item.chunk.count - eviction->evicted(layer));
  }
  clock_.advance_ns(nanoseconds(cost_->step_seconds(shape)));
}

// A pure function of stream and position, so a preempted stream continues with the same tokens.
Result<bool> SimulatedExecutor::choose(LiveStream& stream, int64_t, TokenEvent& event) {
  const Sequence& s = stream.sequence;
  const auto draw = philox4x32(s.request.sampling.seed, static_cast<uint64_t>(s.generated()), s.id);
  event.token = static_cast<TokenId>(draw[0] % static_cast<uint32_t>(kSimulatedVocab));
  return s.request.known_tokens >= 0 && s.generated() + 1 >= s.request.known_tokens;
}

int64_t SimulatedExecutor::next_move_ns() const {
  const int64_t now = clock_.now_ns(), bus = bus_free_ns_ > now ? bus_free_ns_ : INT64_MAX,
                disk = disk_free_ns_ > now ? disk_free_ns_ : INT64_MAX;
  return std::min(bus, disk) == INT64_MAX ? 0 : std::min(bus, disk);
}

}  // namespace millrace
