// The architectures that can be trained, as a subset of ArchSpec: Llama's layers (RMSNorm, RoPE, grouped-query
// attention, and a gated MLP or a mixture of gated MLPs), all with the same sizes, and a tied head. (Touvron et al.,
// 2023, "LLaMA"; Ainslie et al., 2023, "GQA"; Su et al., 2021, "RoFormer"; Jiang et al., 2024, "Mixtral of Experts".)
// Thread-safety: values.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "models/arch_spec.h"

namespace millrace {

constexpr int64_t kExpertsUsed = 2;  // number of experts that a token uses in a mixture

// Completes a spec to a Llama of `layers` equal layers. The spec must already have vocab, context, width, heads and
// kv_heads, and either hidden or moe.experts and moe.hidden. If these sizes cannot be trained, the spec has no layers
// afterwards.
void complete_llama(ArchSpec& spec, int64_t layers, double rope_base);

// Checks that the spec can be trained. Sizes are checked before they are multiplied, so no product overflows. Errors:
// unsupported (names the first part of the spec that cannot be trained).
Result<void> trainable(const ArchSpec& spec);

// Returns the number of weights. `spec` must be trainable().
int64_t trained_parameters(const ArchSpec& spec);

// Returns true if the weights of one model fit the other and give the same results. Both specs must be trainable().
bool same_model(const ArchSpec& a, const ArchSpec& b);

// Rows of the layer's fused matrix of queries, keys and values.
inline int64_t qkv_rows(const LayerSpec& layer) { return (layer.heads + 2 * layer.kv_heads) * layer.head_dim; }

// Inner width of the layer's MLP, or of one of its experts.
inline int64_t mlp_width(const LayerSpec& layer) { return layer.moe ? layer.experts.hidden : layer.hidden; }

// Number of gated MLPs of the layer.
inline int64_t mlp_count(const LayerSpec& layer) { return layer.moe ? layer.experts.experts : 1; }

}  // namespace millrace
