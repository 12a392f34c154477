// Attention of queries that do not see every earlier slot (Visibility, flow/batch.h): the branches of a token tree, the
// segments of parallel contexts, the blocks of a sparse pattern.
//
// No kernel has a mask. The keys that a query sees are numbered from 0 in the order of their slots, and cut into
// partitions at multiples of 256 of that number. The kernel receives the addresses of their rows. Keys that are not
// seen are not read and cost nothing. A query's result has the bits of a query of a plain stream that holds just those
// keys:
//
//   stream   0 1 2 3 4 | tree: 5a 5b 6a 6b 7b        6b sees 0 1 2 3 4 5b 6b, as in a stream whose slot 5 holds 5b
//
// So a path of a tree has the bits of the same tokens as a chain, and a separate segment has the bits of a separate
// stream. Segments of different scale or bias do not share partitions; the bias is added to the partial's maximum. If
// the weights of documents are changed as a whole (DocumentWeights), their keys are read first. If a query chooses
// among documents, their keys are read twice: once for the sums of weights, once for the values.
#pragma once

#include "attention/full.h"
#include "attention/partial.h"
#include "attention/pattern.h"

namespace millrace {

// Queries [first, first + queries) of one span that has a visibility, and the heads of one KV head.
struct VisibleUnit {
  const Batch& batch;
  const BatchSpan& span;
  const AttentionLayer& layer;
  const KernelTable& kernels;
  KvPool& kv;
  const AttentionKernel& kernel;
  const float* q;  // queries of the batch: [tokens, heads * head_dim]
  int64_t kv_head;
  int64_t first;
  int64_t queries;  // at most 256 / the heads of a KV head, or 1
  // For patterns: the layer of the pool whose rows are the values; below 0: the layer's own.
  int64_t value_layer = -1;
  bool residuals = false;               // rows are read with their residuals
  const CodecTiles* encoded = nullptr;  // for patterns: as for attend()
  int worker = 0;
};

// Another partial of as many rows, the floats of one query's heads, and those of a choice of documents.
int64_t visible_scratch_floats(int64_t rows, int64_t group, int64_t head_dim, int64_t value_dim);

// Writes their result to `total`. `scratch` has visible_scratch_floats(). `pattern`: a static one, or null; its blocks
// are of the keys that the queries may see, counted from 0. Not of a tree.
void attend_visible(const VisibleUnit& unit, const AttentionPattern* pattern, const Partial& total, float* scratch);

}  // namespace millrace
