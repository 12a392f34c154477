#include "models/forward_context.h"

#include <algorithm>

#include "attention/full.h"
#include "kernels/activation.h"

namespace millrace {
namespace {

int64_t widest_row(int64_t cols) {
  int64_t bytes = 0;
  for (Activation kind : {Activation::f32, Activation::bf16, Activation::q8}) bytes = std::max(bytes, activation_row_bytes(kind, cols));
  return bytes;
}

}  // namespace

Result<ForwardContext> ForwardContext::create(const ArchSpec& spec, const KernelTable& kernels, ThreadPool& pool, KvPool& kv,
                                              const ForwardLimits& limits) {
  ForwardContext c;
  c.kernels_ = &kernels;
  c.pool_ = &pool;
  c.kv_ = &kv;
  c.limits_ = limits;
  const int64_t T = limits.tokens;
  const int64_t q_width = spec.heads * spec.head_dim;
  const int64_t kv_width = spec.kv_heads * spec.head_dim;
  const int64_t used = std::max<int64_t>(1, spec.moe.used);
  const int64_t hidden = std::max({spec.hidden, spec.moe.shared_hidden, spec.moe.hidden * used});
  const int64_t widest = std::max({spec.width, q_width, spec.hidden, spec.moe.shared_hidden});
  const int64_t hidden_row = std::max(widest_row(std::max<int64_t>(1, spec.moe.hidden)) * used, widest_row(widest));
  int64_t rotated = 0;
  for (const auto& rope : spec.ropes) rotated += rope.rotated;
  struct Wanted { AlignedBuffer* buffer; int64_t bytes; };
  const Wanted wanted[] = {
      {&c.residual, T * spec.width * 4},
      {&c.normed, T * spec.width * 4},
      {&c.block_out, T * spec.width * 4},
      {&c.q, T * q_width * 4},
      {&c.k, T * kv_width * 4},
      {&c.v, T * kv_width * 4},
      {&c.attended, T * q_width * 4},
      {&c.gate, T * hidden * 4},
      {&c.up, T * hidden * 4},
      {&c.encoded, std::max(T, limits.outputs) * widest_row(widest)},
      {&c.encoded_hidden, T * hidden_row},
      {&c.rope, T * rotated * 4},
      {&c.partials, 4 * attention_scratch_floats(pool.threads(), limits.context, spec.heads / spec.kv_heads, spec.head_dim, spec.kv_heads)},
      {&c.logits_, limits.outputs * spec.vocab * 4},
      {&c.router, T * spec.moe.experts * 4},
      {&c.expert_in, spec.moe.experts ? T * used * widest_row(spec.width) : 0},
      {&c.expert_out, spec.moe.experts ? T * used * spec.width * 4 : 0},
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
  c.block_pointers.resize(static_cast<size_t>(attention_scratch_pointers(pool.threads(), limits.context, kv.layout().block_tokens)));
  return c;
}

int64_t ForwardContext::bytes() const {
  int64_t total = logits_.bytes();
  for (const AlignedBuffer* buffer : {&residual, &normed, &block_out, &q, &k, &v, &attended, &gate, &up, &encoded, &encoded_hidden,
                                      &rope, &partials, &router, &expert_in, &expert_out})
    total += buffer->bytes();
  return total;
}

}  // namespace millrace
