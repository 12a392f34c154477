// Key worth: adds the worth that an evictor sees in each new token's keys (TokenEvictor::key_worth()) to the token's
// sum. Only observes the forward pass, like token_mass.h. Sums are integers, so the result does not depend on the order
// of heads, layers and chunks. Called by the thread of the pass, between its parallel parts.
#pragma once

#include <cstdint>
#include <span>

#include "attention/full.h"
#include "kv/token_evictor.h"

namespace millrace {

// The new keys of one layer: k [tokens, stride]; the layer's KV heads are the first values of each row.
struct NewKeys {
  const float* k = nullptr;
  int64_t stride = 0;
};

// One stream's part of the pass, and where its sums are.
struct KeyWorthSpan {
  const TokenEvictor* evictor = nullptr;
  int64_t span = 0;                     // index of the batch span
  int64_t drafted = 0;                  // number of the span's last tokens that are drafted and may be rejected
  int64_t skipped = 0;                  // number of the span's first tokens, which are not judged
  int64_t documents = 0;                // slots [0, documents) hold documents whose stored keys are judged in this pass
  int64_t heads = 1;                    // columns of the sums: 1, or the KV heads of all layers of the pool
  bool whole_layers = false;            // true: each head's sum covers all heads of its layer
  std::span<int64_t> worth = {};        // [slots before the first drafted token, heads]
  std::span<int64_t> draft_worth = {};  // [drafted, slots, heads]: the worth that each drafted token adds if it is kept
};

// Adds the worth of the keys that the span's tokens have in `layer`.
void add_key_worth(const Batch& batch, const AttentionLayer& layer, const KvPool& kv, const NewKeys& keys,
                   const KeyWorthSpan& judged);

// Adds the worth of the keys in slots [0, judged.documents), which are read from the pool. Blocks within these slots
// must be complete; if the pool has a codec, `tiles` (at this layer) has encoded them. Rows behind these blocks are raw
// for every query of the span. So the result does not depend on where the span begins and ends.
void add_document_worth(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, KvPool& kv,
                        const CodecTiles* tiles, const KeyWorthSpan& judged);

}  // namespace millrace
