// Layers of the KV pool that a pattern has in addition to the model's layers: summaries of keys (key_summaries.h), or
// values of hops (hop_values.h). Each set has one layer for each layer of the model, behind the layers of the set
// before.
#pragma once

#include "attention/hop_values.h"
#include "attention/key_summaries.h"

namespace millrace {

// Sets of layers; 0 without a pattern that has any.
inline int64_t pattern_layer_sets(const AttentionPattern* pattern) {
  if (const DiffusingPattern* diffusing = diffusing_pattern(pattern)) return diffusing->hops() - 1;
  return dynamic_pattern(pattern) ? 1 : 0;
}

// Errors: unsupported (formats or layers of the model that the pattern does not go with).
inline Result<void> add_pattern_layers(KvLayout& layout, const AttentionPattern* pattern, int64_t context) {
  MILLRACE_TRY_VOID(add_key_summaries(layout, pattern, context));
  return add_hop_values(layout, pattern, context);
}

}  // namespace millrace
