// Layers of the KV pool that a pattern has in addition to the model's layers: summaries of keys (key_summaries.h), or
// values of hops (hop_values.h). Such layers come in sets of one layer for each layer of the model; the sets are stored
// one behind the other.
#pragma once

#include "attention/hop_values.h"
#include "attention/key_summaries.h"

namespace millrace {

// Returns the number of sets; 0 if there is no pattern, or if it has no such layers.
inline int64_t pattern_layer_sets(const AttentionPattern* pattern) {
  if (const DiffusingPattern* diffusing = diffusing_pattern(pattern)) return diffusing->hops() - 1;
  return dynamic_pattern(pattern) ? 1 : 0;
}

// Errors: unsupported (the pattern does not support the model's layers or the formats of the KV cache).
inline Result<void> add_pattern_layers(KvLayout& layout, const AttentionPattern* pattern, int64_t context) {
  MILLRACE_TRY_VOID(add_key_summaries(layout, pattern, context));
  return add_hop_values(layout, pattern, context);
}

}  // namespace millrace
