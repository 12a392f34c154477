#include "models/forward_sizes.h"

#include "kernels/activation.h"
#include "models/blocks/part_scratch.h"
#include "models/mixers/mixer.h"

namespace millrace {
namespace {

int64_t rounded_row(int64_t cols) {
  int64_t bytes = 0;
  for (Activation kind : kActivations) bytes = std::max(bytes, activation_row_bytes(kind, cols));
  return bytes;
}

void declare_mlp(int64_t hidden, ForwardSizes& sizes) {
  sizes.reads(hidden);
  ForwardSizes::grow(sizes.hidden, hidden);
  ForwardSizes::grow(sizes.hidden_row, rounded_row(hidden));
}

void declare_experts(const MoeSpec& moe, double capacity, ForwardSizes& sizes) {
  if (moe.shared_hidden > 0) declare_mlp(moe.shared_hidden, sizes);
  int64_t rows = sizes.tokens * moe.used;
  if (capacity > 0) rows = std::max(rows, moe.experts * padded_rows(capacity, rows, moe.experts));
  const int64_t each = (rows + sizes.tokens - 1) / std::max<int64_t>(1, sizes.tokens);  // of a token
  ForwardSizes::grow(sizes.hidden, moe.hidden * each);
  ForwardSizes::grow(sizes.hidden_row, rounded_row(moe.hidden) * each);
  ForwardSizes::grow(sizes.experts, moe.experts);
  ForwardSizes::grow(sizes.used, moe.used);
  ForwardSizes::grow(sizes.expert_rows, rows);
}

}  // namespace

void ForwardSizes::reads(int64_t cols) { grow(widest_row, rounded_row(cols)); }

ForwardSizes forward_sizes(const ArchSpec& spec, const ForwardLimits& limits, int threads) {
  ForwardSizes sizes{.tokens = limits.tokens,
                     .outputs = limits.outputs,
                     .rows = std::max(limits.tokens, limits.outputs),
                     .width = spec.width,
                     .vocab = spec.vocab,
                     .expert_row = rounded_row(spec.width),
                     .parts = part_scratch_bytes(spec.parts)};
  sizes.reads(spec.width);
  for (const RopeSpec& rope : spec.ropes) sizes.rotated += rope.rotated;
  if (spec.layer_input > 0) {
    sizes.inputs = spec.layer_count() * spec.layer_input;
    sizes.reads(spec.layer_input);
    ForwardSizes::grow(sizes.hidden, spec.layer_input);
  }
  if (spec.streams > 1) sizes.streams = spec.streams * spec.width;
  if (spec.laurel_rank > 0) {
    sizes.beside = spec.width;
    sizes.reads(spec.laurel_rank);
    ForwardSizes::grow(sizes.hidden, spec.laurel_rank);
  }
  for (LayerSpec layer : spec.layers) {
    set_own_sizes(spec, layer);
    for (const LayerMixer& one : layer.mixers) one.mixer->declare(layer, limits, threads, sizes);
    if (layer.moe) declare_experts(layer.experts, limits.switches.expert_capacity, sizes);
    if (layer.has_dense_mlp()) declare_mlp(layer.hidden, sizes);
    if (layer.moe && layer.experts.beside_mlp) sizes.beside = spec.width;
  }
  return sizes;
}

}  // namespace millrace
