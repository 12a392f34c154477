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

// Bytes of each buffer of a context.
struct ScratchSizes {
  int64_t residual, normed, block_out, q, k, v, attended, gate, up, encoded, encoded_hidden, rope, partials, logits,
      router, expert_in, expert_out;
};

ScratchSizes scratch_sizes(const ArchSpec& spec, const ForwardLimits& limits, int threads) {
  const int64_t T = limits.tokens;
  const int64_t q_width = spec.heads * spec.head_dim;
  const int64_t kv_width = spec.kv_heads * spec.head_dim;
  const int64_t used = std::max<int64_t>(1, spec.moe.used);
  const int64_t hidden = std::max({spec.hidden, spec.moe.shared_hidden, spec.moe.hidden * used});
  const int64_t widest = std::max({spec.width, q_width, spec.hidden, spec.moe.shared_hidden});
  const int64_t hidden_row = std::max(widest_row(std::max<int64_t>(1, spec.moe.hidden)) * used, widest_row(widest));
  int64_t rotated = 0;
  for (const auto& rope : spec.ropes) rotated += rope.rotated;
  return {
      .residual = T * spec.width * 4,
      .normed = T * spec.width * 4,
      .block_out = T * spec.width * 4,
      .q = T * q_width * 4,
      .k = T * kv_width * 4,
      .v = T * kv_width * 4,
      .attended = T * q_width * 4,
      .gate = T * hidden * 4,
      .up = T * hidden * 4,
      .encoded = std::max(T, limits.outputs) * widest_row(widest),
      .encoded_hidden = T * hidden_row,
      .rope = T * rotated * 4,
      .partials = 4 * attention_scratch_floats(threads, limits.context, spec.heads / spec.kv_heads, spec.head_dim,
                                               spec.kv_heads),
      .logits = limits.outputs * spec.vocab * 4,
      .router = T * spec.moe.experts * 4,
      .expert_in = spec.moe.experts ? T * used * widest_row(spec.width) : 0,
      .expert_out = spec.moe.experts ? T * used * spec.width * 4 : 0,
  };
}

}  // namespace

ForwardBytes ForwardContext::plan(const ArchSpec& spec, const ForwardLimits& limits, int threads,
                                  int64_t block_tokens) {
  const ScratchSizes b = scratch_sizes(spec, limits, threads);
  constexpr int64_t kPage = 4096;  // each buffer ends on one
  int64_t activations = 17 * kPage;
  for (int64_t bytes : {b.residual, b.normed, b.block_out, b.q, b.k, b.v, b.attended, b.gate, b.up, b.encoded,
                        b.encoded_hidden, b.rope, b.partials, b.router, b.expert_in, b.expert_out})
    activations += bytes;
  activations += 8 * attention_scratch_pointers(threads, limits.context, block_tokens);
  activations += limits.tokens * 16;  // the batch itself
  if (spec.moe.experts)
    activations +=
        limits.tokens * spec.moe.used * 12 + spec.moe.experts * (8 + 2 * static_cast<int64_t>(sizeof(LinearPart)));
  return {activations, b.logits};
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
  const ScratchSizes b = scratch_sizes(spec, limits, pool.threads());
  struct Wanted {
    AlignedBuffer* buffer;
    int64_t bytes;
  };
  const Wanted wanted[] = {
      {&c.residual, b.residual},
      {&c.normed, b.normed},
      {&c.block_out, b.block_out},
      {&c.q, b.q},
      {&c.k, b.k},
      {&c.v, b.v},
      {&c.attended, b.attended},
      {&c.gate, b.gate},
      {&c.up, b.up},
      {&c.encoded, b.encoded},
      {&c.encoded_hidden, b.encoded_hidden},
      {&c.rope, b.rope},
      {&c.partials, b.partials},
      {&c.logits_, b.logits},
      {&c.router, b.router},
      {&c.expert_in, b.expert_in},
      {&c.expert_out, b.expert_out},
  };
  for (const auto& [buffer, bytes] : wanted) {
    MILLRACE_TRY(*buffer, AlignedBuffer::allocate(bytes, "activations"));
  }
  if (spec.moe.experts) {
    c.chosen.resize(static_cast<size_t>(T * used));
    c.chosen_weight.resize(static_cast<size_t>(T * used));
    c.expert_rows.resize(static_cast<size_t>(T * used));
    c.expert_begin.resize(static_cast<size_t>(spec.moe.experts + 1));
    c.expert_parts.resize(static_cast<size_t>(2 * spec.moe.experts));
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
  int64_t total = logits_.bytes();
  for (const AlignedBuffer* buffer : {&residual, &normed, &block_out, &q, &k, &v, &attended, &gate, &up, &encoded,
                                      &encoded_hidden, &rope, &partials, &router, &expert_in, &expert_out})
    total += buffer->bytes();
  return total;
}

}  // namespace millrace
