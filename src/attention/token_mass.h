// Token mass: how much attention each stored token receives from the queries of a step, in every layer, for token
// evictors. It only observes the forward pass, like mass.h. A query's weights are known only after it has seen all of
// its keys. By then the attention kernels have dropped the scores, so the same kernels compute the scores again,
// without values. Sums are integers (kMassUnit), so the result does not depend on threads or chunks. With a pattern, a
// query pays attention only to the keys of the blocks that it sees.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/block_marks.h"
#include "attention/full.h"

namespace millrace {

// The tokens to observe in the next forward pass, and the sums that their attention is added to.
struct TokenMass {
  struct Span {
    int64_t span = 0;     // index of the batch span
    int64_t drafted = 0;  // number of the span's last queries that belong to drafted tokens, which may be rejected
    int64_t skipped = 0;  // number of the span's first queries, which are not observed
    bool shares = false;  // MassRule::shares
    int64_t heads = 1;    // number of separate sums for each slot: 1, or one for each KV head of all layers of the pool
    bool whole_layers = false;  // true: each head's sum covers all heads of its layer
    // [KV heads of the layer], 0: the head is pruned and does not count; null: all heads count.
    const uint8_t* attends = nullptr;
    // [slots before the first drafted token, heads], from the queries that are not drafted.
    std::span<int64_t> mass;
    // [drafted, slots, heads], from each drafted query alone.
    std::span<int64_t> draft_mass;
  };
  std::vector<Span> spans;  // empty: nothing is computed

  // Scratch of one worker.
  struct Scratch {
    std::vector<const uint8_t*> blocks;
    std::vector<float> scores;  // [queries, heads of a KV head, slots]
    std::vector<int64_t> sums;  // [KV heads of the layer, or 1 if they share sums, 1 + drafted, slots]
    // With a pattern: the blocks that each query sees, and scratch of choose_blocks().
    std::vector<BlockMarks> marks;
    std::vector<float> features, block_scores, work;
  };
  std::vector<Scratch> scratch;
  // Maximum number of drafted tokens of a span in any pass; determines the size of the scratch.
  int64_t most_drafted = 0;
};

// `q`: [tokens, heads * head_dim], scaled and rotated; the batch's keys must already be stored. Adds the softmax of
// every observed query over the slots that it sees, for every head. With MassRule::shares, it instead adds 1 for each
// slot that receives at least an even share. `context`, `tiles`: as for attend(). Keys are decoded here, so the weights
// may differ by rounding from those of kernels that read tiles.
void observe_token_mass(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool,
                        KvPool& kv, const float* q, int64_t context, TokenMass& mass,
                        const CodecTiles* tiles = nullptr);

// Variant for a layer whose KV heads have separate block tables; observes all heads at once. `first` and `q` are those
// of the first head (AttentionLayer::of_head). mass.spans is [heads, spans], each with its own sums (Span::heads is 1).
void observe_per_head_tables(const Batch& batch, const AttentionLayer& first, const KernelTable& kernels,
                             ThreadPool& pool, KvPool& kv, const float* q, TokenMass& mass);

// Scratch bytes of one worker, for spans of at most `slots` slots and `drafted` drafted tokens. `group`: maximum number
// of query heads that share a KV head. `heads`: maximum number of heads of a layer that have their own sums. `pattern`:
// null if there is none.
int64_t token_mass_bytes(int64_t slots, int64_t drafted, int64_t group, int64_t heads = 1,
                         const AttentionPattern* pattern = nullptr);

}  // namespace millrace
