#include "models/forward_context.h"

#include <algorithm>

#include "attention/full.h"
#include "models/blocks/rope.h"
#include "models/pattern_check.h"
#include "models/visible.h"

namespace millrace {
namespace {

// By layer; none where no codec asks for keys before RoPE.
std::vector<KeyRope> key_ropes(const ArchSpec& spec, const KvLayout& layout, int64_t context) {
  const auto asks = [](const KvLayout& group) { return group.codec && group.codec->before_rope(); };
  std::vector<KeyRope> ropes;
  if (!asks(layout) && std::ranges::none_of(layout.windows, asks)) return ropes;
  for (const LayerSpec& layer : spec.layers) {
    KeyRope& rope = ropes.emplace_back(KeyRope{.half = spec.rope_style == RopeStyle::half});
    if (layer.rope >= 0) rope.frequencies = rope_frequencies(spec.ropes[static_cast<size_t>(layer.rope)], context);
  }
  return ropes;
}

}  // namespace

// Streams whose blocks are given back have longer tables than the pool has blocks; so have, in the other groups, those
// that drop tokens of the first one.
void reserve_tables(const KvPool& kv, int64_t streams, int64_t context, Batch& batch) {
  const int64_t of_streams = streams * kv.blocks_for(context);
  const int64_t longest = kv.divided() ? of_streams : std::max(kv.total_blocks(), of_streams);
  batch.block_tables.reserve(static_cast<size_t>(kv.layout().window > 0 || kv.divided() ? longest : kv.total_blocks()));
  batch.window_tables.resize(static_cast<size_t>(kv.groups() - 1));
  batch.window_spans.resize(batch.window_tables.size());
  for (auto& tables : batch.window_tables)
    tables.reserve(
        static_cast<size_t>(kv.layout().window > 0 || kv.evicts() || kv.divided() ? longest : kv.total_blocks()));
}

ForwardBytes ForwardContext::plan(const ArchSpec& spec, const ForwardLimits& limits, int threads,
                                  int64_t block_tokens) {
  const ForwardSizes d = forward_sizes(spec, limits, threads);
  constexpr int64_t kPage = 4096;  // buffers are rounded up to whole pages
  int64_t buffers = 0;
#define MILLRACE_ADD_BUFFER(name, size) buffers += (size) + kPage;
  MILLRACE_FORWARD_BUFFERS(MILLRACE_ADD_BUFFER)
#undef MILLRACE_ADD_BUFFER
  const int64_t logits = d.outputs * d.vocab * 4;
  int64_t activations = buffers - logits;
  activations += 8 * attention_scratch_pointers(threads, limits.context, block_tokens);
  // The batch itself, and that of the rows that are kept: with readers, as many as there are tokens.
  activations += limits.tokens * (16 + 16 + 2 * static_cast<int64_t>(sizeof(BatchSpan)));
  if (d.experts)
    activations +=
        d.expert_rows * 12 + d.experts * (8 + 2 * static_cast<int64_t>(sizeof(LinearPart) + sizeof(LinearSource)));
  return {activations, logits};
}

ForwardBytes ForwardContext::plan(const ArchSpec& spec, const ForwardLimits& limits, int threads,
                                  const KvLayout& layout) {
  ForwardBytes bytes = plan(spec, limits, threads, layout.block_tokens);
  const std::vector<KeyRope> ropes = key_ropes(spec, layout, limits.context);
  bytes.activations += CodecTiles::bytes(layout, limits.tokens, threads, ropes, limits.context);
  for (const KvLayout& group : layout.windows)
    bytes.activations += CodecTiles::bytes(group, limits.tokens, threads, ropes, limits.context);
  return bytes;
}

Result<ForwardContext> ForwardContext::create(const ArchSpec& spec, const KernelTable& kernels, ThreadPool& pool,
                                              KvPool& kv, const ForwardLimits& limits) {
  MILLRACE_TRY_VOID(check_pattern(spec, kv, limits));
  MILLRACE_TRY_VOID(check_residuals(spec, kv, limits));
  ForwardContext c;
  c.kernels_ = &kernels;
  c.pool_ = &pool;
  c.kv_ = &kv;
  c.limits_ = limits;
  c.part_sizes_ = spec.parts;
  const ForwardSizes d = forward_sizes(spec, limits, pool.threads());
#define MILLRACE_ALLOCATE_BUFFER(name, size)                            \
  {                                                                     \
    MILLRACE_TRY(c.name, AlignedBuffer::allocate(size, "activations")); \
    c.name.use_small_pages();                                           \
  }
  MILLRACE_FORWARD_BUFFERS(MILLRACE_ALLOCATE_BUFFER)
#undef MILLRACE_ALLOCATE_BUFFER
  if (d.experts) {
    c.chosen.resize(static_cast<size_t>(d.expert_rows));
    c.chosen_weight.resize(static_cast<size_t>(d.expert_rows));
    c.expert_rows.resize(static_cast<size_t>(d.expert_rows));
    c.expert_begin.resize(static_cast<size_t>(d.experts + 1));
    c.expert_parts.resize(static_cast<size_t>(2 * d.experts));
    c.expert_sources.resize(static_cast<size_t>(2 * d.experts));
    c.expert_leases.reserve(static_cast<size_t>(d.experts));
    c.expert_ids.reserve(static_cast<size_t>(d.experts));
  }
  const auto outputs = static_cast<size_t>(std::max(limits.tokens, limits.outputs));
  c.outputs.tokens.reserve(outputs);
  c.outputs.positions.reserve(outputs);
  c.outputs.spans.reserve(outputs);
  c.outputs.output_rows.reserve(outputs);
  reserve_tables(kv, limits.outputs, limits.context, c.outputs);
  reserve_visibility(limits.outputs, limits.tokens, c.outputs);
  c.block_pointers.resize(
      static_cast<size_t>(attention_scratch_pointers(pool.threads(), limits.context, kv.layout().block_tokens)));
  for (auto& own : c.outputs.window_spans) own.reserve(outputs);
  c.shared_prefixes.reserve(limits.tokens);
  if (spec.encoder) {
    c.text_spans.reserve(outputs);
    c.text_units.reserve(outputs + 1);
    c.token_types.reserve(static_cast<size_t>(limits.tokens));
  }
  const std::vector<KeyRope> ropes = key_ropes(spec, kv.layout(), limits.context);
  for (int64_t group = 0; kv.layout().encodes() && group < kv.groups(); ++group) {
    MILLRACE_TRY(CodecTiles tiles,
                 CodecTiles::create(kv, group, kernels, limits.tokens, pool.threads(), ropes, limits.context));
    c.tiles.push_back(std::move(tiles));
  }
  return c;
}

void ForwardContext::expect_rows(int64_t rows) {
  constexpr int64_t kFewRows = 64;
  if (rows <= kFewRows || huge_pages_) return;
  huge_pages_ = true;
#define MILLRACE_USE_HUGE_PAGES(name, size) name.use_huge_pages();
  MILLRACE_FORWARD_BUFFERS(MILLRACE_USE_HUGE_PAGES)
#undef MILLRACE_USE_HUGE_PAGES
}

std::span<float> ForwardContext::after_layers() {
  AlignedBuffer* largest = &block_out;
  for (AlignedBuffer* buffer : {&q, &k, &v, &attended, &gate, &up, &partials, &mixer, &expert_in, &expert_out})
    if (buffer->bytes() > largest->bytes()) largest = buffer;
  return {largest->as<float>(), static_cast<size_t>(largest->bytes()) / sizeof(float)};
}

int64_t ForwardContext::bytes() const {
  int64_t total = 0;
  for (const CodecTiles& one : tiles) total += one.bytes();
#define MILLRACE_COUNT_BUFFER(name, size) total += name.bytes();
  MILLRACE_FORWARD_BUFFERS(MILLRACE_COUNT_BUFFER)
#undef MILLRACE_COUNT_BUFFER
  return total;
}

}  // namespace millrace
