// The part of ArchSpec that can be trained: Llama's layers (RMSNorm, RoPE, grouped-query attention, a gated MLP or a
// mixture of them, tied head), all alike. (Touvron et al., 2023, "LLaMA"; Ainslie et al., 2023, "GQA"; Su et al., 2021,
// "RoFormer"; Jiang et al., 2024, "Mixtral of Experts".) Thread-safety: values.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "models/arch_spec.h"

namespace millrace {

constexpr int64_t kExpertsUsed = 2;  // by a token, of a mixture

// Completes a spec that has vocab, context, width, heads, kv_heads and hidden, or moe.experts and moe.hidden: a Llama
// of `layers` equal layers. Counts that cannot be trained give no layers.
void complete_llama(ArchSpec& spec, int64_t layers, double rope_base);

// Errors: unsupported, naming the first part of the spec that cannot be trained. Sizes are bounded before they are
// multiplied.
Result<void> trainable(const ArchSpec& spec);

// Returns the number of weights. The spec is trainable.
int64_t trained_parameters(const ArchSpec& spec);

// Returns true if weights of one model fit the other and compute the same. Both specs are trainable.
bool same_model(const ArchSpec& a, const ArchSpec& b);

// Rows of the layer's fused matrix of queries, keys and values.
inline int64_t qkv_rows(const LayerSpec& layer) { return (layer.heads + 2 * layer.kv_heads) * layer.head_dim; }

// Inner width of the layer's MLP, or of one of its experts.
inline int64_t mlp_width(const LayerSpec& layer) { return layer.moe ? layer.experts.hidden : layer.hidden; }

// Number of gated MLPs of the layer.
inline int64_t mlp_count(const LayerSpec& layer) { return layer.moe ? layer.experts.experts : 1; }

}  // namespace millrace
