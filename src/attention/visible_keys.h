// Attention of queries that do not see every earlier slot (Visibility, flow/batch.h): the branches of a token tree, the
// segments of parallel contexts, the blocks of a sparse pattern.
//
// No kernel has a mask. The keys that a query sees are numbered from 0 in the order of their slots, and cut into
// partitions of 256 keys by these numbers. The kernel receives the addresses of their rows. Keys that are not seen are
// not read and cost nothing. A query's result is bit-identical to that of a plain stream that holds only the keys it
// sees:
//
//   stream   0 1 2 3 4 | tree: 5a 5b 6a 6b 7b        6b sees 0 1 2 3 4 5b 6b, as in a stream whose slot 5 holds 5b
//
// So a path of a tree gives the same bits as its tokens in a chain, and a separate segment gives the same bits as a
// separate stream. Segments with different scales or biases do not share partitions; the bias is added to the partial's
// maximum. If the weights of documents are changed as a whole (DocumentWeights), the documents' keys are read before
// all others. If a query chooses among documents, their keys are read twice: once for the sums of weights, once for the
// values.
#pragma once

#include "attention/full.h"
#include "attention/partial.h"
#include "attention/pattern.h"

namespace millrace {

// A unit of work: queries [first, first + queries) of one span that has a visibility, for the query heads of one KV
// head.
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
  int64_t queries;  // at most max(1, 256 / query heads of a KV head)
  // For patterns: index of the pool's layer whose rows are the values; negative: the layer itself.
  int64_t value_layer = -1;
  bool residuals = false;               // true: rows are read with their residuals (kv/row_residuals.h)
  const CodecTiles* encoded = nullptr;  // for patterns: as for attend()
  int worker = 0;
};

// Returns the floats of the scratch for attend_visible(): a second partial, one query's heads, and a DocumentChoice.
int64_t visible_scratch_floats(int64_t rows, int64_t group, int64_t head_dim, int64_t value_dim);

// Writes the unit's result to `total`. `scratch`: visible_scratch_floats() floats. `pattern`: a static pattern, or
// null; its blocks are counted over the keys that the queries may see, from 0. A span with a pattern must not be a
// tree.
void attend_visible(const VisibleUnit& unit, const AttentionPattern* pattern, const Partial& total, float* scratch);

}  // namespace millrace
