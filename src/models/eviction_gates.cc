#include "models/eviction_gates.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int64_t kMinParallelWork = 1 << 14;  // products
constexpr int64_t kKeysATask = 64;

// Calls body(i), on several threads if `work`, the number of products of each, makes that worthwhile.
template <typename Body>
void each(ThreadPool& pool, int64_t count, int64_t work, const Body& body) {
  if (count * work < kMinParallelWork)
    for (int64_t i = 0; i < count; ++i) body(i);
  else
    pool.parallel_for(count, [&](int64_t i, int) { body(i); });
}

}  // namespace

// A stream's tokens of the pass in one layer.
struct EvictionGates::Chunk {
  const TokenGates& gates;
  const float* x;  // [count, width]
  int64_t width;
  const BatchSpan& span;  // of the layer's group
  int64_t first;          // in the text
  GatedTokens& tokens;
};

EvictionGates::EvictionGates(ModelRunner& runner) : runner_(runner) {
  queries_.resize(static_cast<size_t>(runner.limits().tokens * runner.model().spec().gates.dims));
}

int64_t gate_scratch_bytes(const GateSizes& gates, int64_t tokens) {
  return tokens * gates.dims * static_cast<int64_t>(sizeof(float));
}

void EvictionGates::start() {
  gated_.clear();
  runner_.hooks().set_gate(nullptr);
}

void EvictionGates::add(TokenEviction& eviction) {
  gated_.push_back({runner_.batch().spans.size() - 1, &eviction});
  runner_.hooks().set_gate(this);
}

// A key ends with the first later token whose gate is closed to it.
void EvictionGates::judge_pairs(const Chunk& chunk) {
  const TokenGates& gates = chunk.gates;
  const int64_t slot = chunk.span.first_slot, count = chunk.span.count, slots = slot + count;
  const KernelTable& kernels = runner_.context().kernels();
  each(runner_.threads(), count, 2 * gates.dims * chunk.width, [&](int64_t i) {
    const float* x = chunk.x + i * chunk.width;
    gates.project(kernels, gates.query, x, queries_.data() + i * gates.dims);
    gates.project(kernels, gates.key, x, chunk.tokens.row(slot + i));
  });
  const std::span<int32_t> ends = chunk.tokens.ends();
  each(runner_.threads(), (slots + kKeysATask - 1) / kKeysATask, kKeysATask * count * gates.dims, [&](int64_t task) {
    for (int64_t key = task * kKeysATask; key < std::min(slots, (task + 1) * kKeysATask); ++key) {
      int32_t& end = ends[static_cast<size_t>(key)];
      for (int64_t i = std::max<int64_t>(0, key - slot + 1); i < count && end == GatedTokens::kStays; ++i)
        if (!gates.opens(queries_.data() + i * gates.dims, chunk.tokens.row(key)))
          end = static_cast<int32_t>(chunk.first + i);
    }
  });
}

// A token that is not selected ends with itself, and one that leaves the window with the token that pushes it out.
void EvictionGates::select(const Chunk& chunk, int64_t window) {
  const int64_t slot = chunk.span.first_slot;
  const std::span<int32_t> ends = chunk.tokens.ends();
  const std::span<float> weights = chunk.tokens.weights();
  int64_t staying = std::ranges::count(ends.first(static_cast<size_t>(slot)), GatedTokens::kStays);
  size_t oldest = 0;
  for (int64_t i = 0; i < chunk.span.count; ++i) {
    const auto own = static_cast<size_t>(slot + i);
    const auto token = static_cast<int32_t>(chunk.first + i);
    weights[own] = chunk.gates.selection(chunk.x + i * chunk.width);
    if (weights[own] == 0) {
      ends[own] = token;
      continue;
    }
    if (++staying <= window + 1 || window == 0) continue;
    while (ends[oldest] != GatedTokens::kStays) ++oldest;
    ends[oldest] = token;
    --staying;
  }
}

void EvictionGates::hide(const AttentionInput& in, const float* x, KeyLifetimes& lifetimes) {
  const Model& model = runner_.model();
  const int64_t width = model.spec().width, layer = in.layer.layer - runner_.context().first_kv_layer;
  const TokenGates& gates = model.layer(layer).gates;
  const std::vector<BatchSpan>& spans = in.batch.spans_of(in.layer.group);
  lifetimes.spans.assign(spans.size(), {});
  for (const Gated& one : gated_) {
    const TokenEvictor& rule = *one.eviction->rule().evictor;
    const BatchSpan& span = spans[one.span];
    KeyLifetimes::Span& own = lifetimes.spans[static_cast<size_t>(span.chunk)];
    if (const HeadCascade* heads = one.eviction->kv_heads()) own.heads = heads->kept(in.layer.group);
    if (!rule.gated()) continue;
    const int64_t shift = one.eviction->evicted(in.layer.group);
    GatedTokens& tokens = one.eviction->gated(in.layer.group);
    tokens.begin(span.first_slot + shift, span.first_slot, span.count, rule.gate(), gates.dims);
    const Chunk chunk{gates, x + span.begin * width, width, span, span.first_slot + shift, tokens};
    if (rule.gate() == TokenGate::pairs)
      judge_pairs(chunk);
    else
      select(chunk, rule.window());
    own.shift = shift;
    if (rule.gate() == TokenGate::selection) own.weights = tokens.weights().data();
    const auto ended = [](int32_t end) { return end != GatedTokens::kStays; };
    if (std::ranges::any_of(tokens.ends(), ended)) own.ends = tokens.ends().data();
  }
}

}  // namespace millrace
