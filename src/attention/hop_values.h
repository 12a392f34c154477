// Values that diffuse along a pattern's graph (Feng et al., 2022, Diffuser). A: attention weights of a query head. V:
// values. a: share of a token's own value. K: number of hops.
//
//   Z[0] = V      Z[k] = a V + (1 - a) mean over the heads of a KV head of A Z[k - 1]      result = A Z[K - 1]
//
// The result is the sum of A V, A A V, ... with weights a, a (1 - a), ...; the last hop has the remaining weight. With
// one hop, or a = 1, it is plain attention. A token's Z depends on itself and earlier tokens alone, so it is computed
// once and stored: Z[1] to Z[K - 1] are additional layers of the KV pool without values, like the summaries of
// key_summaries.h:
//
//   layer          0 | K, V
//   layer n + 0      | Z[1]        n: layers of the model
//   layer 2 n + 0    | Z[2]
#pragma once

#include "attention/diffusing_pattern.h"
#include "attention/full.h"

namespace millrace {

// Adds the layers of Z if the pattern diffuses. A model's layer whose window is shorter than `context` tokens has no Z.
// Errors: unsupported (keys and values have different formats, or values are parts of their keys).
Result<void> add_hop_values(KvLayout& layout, const AttentionPattern* pattern, int64_t context);

// Arguments of attend() that do not change from hop to hop.
struct HopCall {
  const Batch& batch;
  const AttentionLayer& layer;
  const KernelTable& kernels;
  ThreadPool& pool;
  KvPool& kv;
  const float* q;
  int64_t context;
  float* scratch;  // room for attention_scratch_floats() floats
  const uint8_t** pointers;
};

// Computes and stores Z[1], ..., Z[K - 1] of the batch's tokens, whose keys and values must be stored. `rows`: scratch
// [tokens, heads * head_dim]. Does nothing if the pattern does not diffuse.
void diffuse_values(const HopCall& call, float* rows);

// Computes the last hop, in place of attend(). The pattern must diffuse, and Z must be stored.
void attend_last_hop(const HopCall& call, float* out);

}  // namespace millrace
