#include "models/forward_context.h"

#include <algorithm>

#include "attention/full.h"
#include "kernels/activation.h"

namespace millrace {
namespace {

int64_t widest_row(int64_t cols) {
  int64_t bytes = 0;
  for (Activation kind : kActivations) bytes = std::max(bytes, activation_row_bytes(kind, cols));
  return bytes;
}

// The dimensions that determine the buffers' sizes.
struct ForwardSizes {
  int64_t tokens, outputs, rows, width, q_width, kv_width, hidden, widest_row, hidden_row, rotated, partials, vocab,
      experts, expert_rows, expert_row;
};

ForwardSizes forward_sizes(const ArchSpec& spec, const ForwardLimits& limits, int threads) {
  const int64_t q_width = spec.heads * spec.head_dim;
  const int64_t used = std::max<int64_t>(1, spec.moe.used);
  const int64_t widest = std::max({spec.width, q_width, spec.hidden, spec.moe.shared_hidden});
  int64_t rotated = 0;
  for (const auto& rope : spec.ropes) rotated += rope.rotated;
  return {
      .tokens = limits.tokens,
      .outputs = limits.outputs,
      .rows = std::max(limits.tokens, limits.outputs),
      .width = spec.width,
      .q_width = q_width,
      .kv_width = spec.kv_heads * spec.head_dim,
      .hidden = std::max({spec.hidden, spec.moe.shared_hidden, spec.moe.hidden * used}),
      .widest_row = widest_row(widest),
      .hidden_row = std::max(widest_row(std::max<int64_t>(1, spec.moe.hidden)) * used, widest_row(widest)),
      .rotated = rotated,
      .partials = 4 * attention_scratch_floats(threads, limits.context, spec.heads / spec.kv_heads, spec.head_dim,
                                               spec.kv_heads),
      .vocab = spec.vocab,
      .experts = spec.moe.experts,
      .expert_rows = spec.moe.experts ? limits.tokens * used : 0,
      .expert_row = widest_row(spec.width),
  };
}

}  // namespace

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
  activations += limits.tokens * 16;  // the batch itself
  if (spec.moe.experts)
    activations += limits.tokens * spec.moe.used * 12 +
                   spec.moe.experts * (8 + 2 * static_cast<int64_t>(sizeof(LinearPart) + sizeof(LinearSource)));
  return {activations, logits};
}

Result<ForwardContext> ForwardContext::create(const ArchSpec& spec, const KernelTable& kernels, ThreadPool& pool,
                                              KvPool& kv, const ForwardLimits& limits) {
  ForwardContext c;
  c.kernels_ = &kernels;
  c.pool_ = &pool;
  c.kv_ = &kv;
  c.limits_ = limits;
  const int64_t T = limits.tokens;
  const int64_t used = std::max<int64_t>(1, spec.moe.used);
  const ForwardSizes d = forward_sizes(spec, limits, pool.threads());
#define MILLRACE_ALLOCATE_BUFFER(name, size) \
  { MILLRACE_TRY(c.name, AlignedBuffer::allocate(size, "activations")); }
  MILLRACE_FORWARD_BUFFERS(MILLRACE_ALLOCATE_BUFFER)
#undef MILLRACE_ALLOCATE_BUFFER
  if (spec.moe.experts) {
    c.chosen.resize(static_cast<size_t>(T * used));
    c.chosen_weight.resize(static_cast<size_t>(T * used));
    c.expert_rows.resize(static_cast<size_t>(T * used));
    c.expert_begin.resize(static_cast<size_t>(spec.moe.experts + 1));
    c.expert_parts.resize(static_cast<size_t>(2 * spec.moe.experts));
    c.expert_sources.resize(static_cast<size_t>(2 * spec.moe.experts));
  }
  const auto outputs = static_cast<size_t>(limits.outputs);
  c.outputs.tokens.reserve(outputs);
  c.outputs.positions.reserve(outputs);
  c.outputs.spans.reserve(outputs);
  c.outputs.output_rows.reserve(outputs);
  c.outputs.block_tables.reserve(static_cast<size_t>(kv.total_blocks()));
  c.block_pointers.resize(
      static_cast<size_t>(attention_scratch_pointers(pool.threads(), limits.context, kv.layout().block_tokens)));
  return c;
}

int64_t ForwardContext::bytes() const {
  int64_t total = 0;
#define MILLRACE_COUNT_BUFFER(name, size) total += name.bytes();
  MILLRACE_FORWARD_BUFFERS(MILLRACE_COUNT_BUFFER)
#undef MILLRACE_COUNT_BUFFER
  return total;
}

}  // namespace millrace
