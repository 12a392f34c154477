// Lines of heads whose queries do not choose blocks for themselves (HeadChoice::lines). The query of the last token of
// each block of a pattern is stored. Every line_blocks() blocks, the queries of the newest blocks find lines by their
// attention to all blocks before them. Vertical lines are the blocks that receive the most attention from any of these
// queries. Slash lines are the distances at which queries pay most attention:
//
//   block   0 1 2 3 4 5 6 7 | 8 9 ...        queries of blocks 4 to 7 look for the blocks that queries from 8 on see
//
// Queries from block 8 on see these blocks, the blocks at these distances, and everything after block 7. Queries before
// the first finding see everything. All queries see the blocks of mark(), so these are not searched for. Queries and
// lines are stored behind the summary of the block (attention/key_summaries.h), so they belong to the stream alone, as
// keys do.
#pragma once

#include "attention/dynamic_pattern.h"
#include "attention/full.h"

namespace millrace {

// Behind each summary: [heads_each, head_dim] | found? | blocks | distances; below 0: none.
int64_t line_floats(const DynamicPattern& pattern, int64_t heads_each, int64_t head_dim);

// Floats of a worker's scratch for find_lines(); 0 without lines.
int64_t line_scratch_floats(const DynamicPattern* pattern, int64_t context, int64_t group, int64_t head_dim,
                            int64_t value_dim);

// Stores the queries of the blocks whose last token is in the batch, and finds the lines that these blocks complete.
// Called after summarize_keys(). The other arguments are those of attend(), whose scratch this uses.
void find_lines(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool,
                KvPool& kv, const float* q, int64_t context, float* scratch, const uint8_t** pointers,
                const CodecTiles* tiles = nullptr);

// A complete block whose keys have changed: its query is no longer of a token before it, and its lines are of other
// blocks. Queries see everything until the next finding. `own`: the pool's layer of summaries.
void forget_lines(const DynamicPattern& pattern, const KvLayer& own, KvPool& kv, const int32_t* table, int64_t kv_head,
                  int64_t block);

// Marks the blocks that the queries of a block see by lines.
void mark_lines(KvPool& kv, const AttentionLayer& layer, const DynamicPattern& pattern, const int32_t* table,
                int64_t kv_head, int64_t query_block, BlockMarks& marks);

}  // namespace millrace
