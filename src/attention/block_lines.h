// Lines: blocks, and distances of blocks, that all later queries of a head see. They are for heads whose queries do not
// choose for themselves (HeadChoice::lines). The query of the last token of each block of a pattern is stored. Every
// line_blocks() blocks, the stored queries of the newest blocks find lines by their attention to all blocks before
// them. Vertical lines are the blocks that receive the most attention from any of these queries. Slash lines are the
// distances in blocks at which these queries pay most attention:
//
//   block   0 1 2 3 4 5 6 7 | 8 9 ...        queries of blocks 4 to 7 look for the blocks that queries from 8 on see
//
// Queries from block 8 on see these blocks, the blocks at these distances, and everything after block 7. Queries before
// the first search see every earlier block. All queries see the blocks of mark(), so the search leaves these out. A
// block's query and lines are stored behind its summary (attention/key_summaries.h), so they follow the stream's blocks
// as keys do.
#pragma once

#include "attention/dynamic_pattern.h"
#include "attention/full.h"

namespace millrace {

// Returns the number of floats behind each summary: the query [heads_each, head_dim] | 1 if lines were found, or 0 |
// vertical lines | slash lines. Unused lines are negative.
int64_t line_floats(const DynamicPattern& pattern, int64_t heads_each, int64_t head_dim);

// Returns the floats of one worker's scratch for find_lines(); 0 without lines.
int64_t line_scratch_floats(const DynamicPattern* pattern, int64_t context, int64_t group, int64_t head_dim,
                            int64_t value_dim);

// Stores the queries of the blocks whose last token is in the batch, and finds the lines that these blocks complete.
// Called after summarize_keys(). The other arguments are those of attend(), whose scratch this uses.
void find_lines(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool,
                KvPool& kv, const float* q, int64_t context, float* scratch, const uint8_t** pointers,
                const CodecTiles* tiles = nullptr);

// Removes the query and the lines of a complete block whose keys have changed, because they no longer match. Later
// queries see every earlier block until the next search. `own`: the pool's layer of summaries.
void forget_lines(const DynamicPattern& pattern, const KvLayer& own, KvPool& kv, const int32_t* table, int64_t kv_head,
                  int64_t block);

// Marks the blocks that lines let the queries of block `query_block` see.
void mark_lines(KvPool& kv, const AttentionLayer& layer, const DynamicPattern& pattern, const int32_t* table,
                int64_t kv_head, int64_t query_block, BlockMarks& marks);

}  // namespace millrace
