// Sums of attention: the blocks that received most attention from earlier queries of a head, its heavy hitters, which
// all later queries see (HeadChoice::sums). The query of the last token of each block is observed. The weights that it
// gives the blocks which it sees are summed by block, and added to the sums of the queries before it, so that larger
// sums belong to blocks that queries look at again and again:
//
//   block    0 1 2 3 4 | 5        the last query of block 4 sees blocks 0, 2 and 3, and adds to their sums and to 4's
//   sums     . - . . . |          queries of block 5 see the blocks of mark() and the `top` others with most
//
// A block that a query does not see receives nothing from it. So a block that has lost its place does not return, as
// in the paper; with phase=decode the prompt's queries see all blocks, and count for all. SumCounts::kept sums are
// stored: those of the blocks that mark() names for the next block of queries, and the largest others. Other blocks
// start again at 0.
//
// The sums are stored behind the summary of each block (attention/key_summaries.h). They depend on the tokens before
// the block's end alone, so they follow the stream's blocks as keys do.
#pragma once

#include "attention/dynamic_pattern.h"
#include "attention/full.h"

namespace millrace {

// Returns the number of floats behind each summary: 1 if sums are stored, or 0 | pairs of a block and its sum, the
// largest sum first; the block is -1 behind the last pair.
int64_t sum_floats(const DynamicPattern& pattern);

// Returns the floats of one worker's scratch for find_sums(); 0 without sums.
int64_t sum_scratch_floats(const DynamicPattern* pattern, int64_t context, int64_t group, int64_t head_dim,
                           int64_t value_dim);

// Stores the sums of the blocks whose last token is in the batch. Called after summarize_keys(). The other arguments
// are those of attend(), whose scratch this uses. Reads the blocks that the observed queries see.
void find_sums(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool,
               KvPool& kv, const float* q, int64_t context, float* scratch, const uint8_t** pointers,
               const CodecTiles* tiles = nullptr);

// Removes the sums of a complete block whose keys have changed. Queries of the next block see every earlier block, and
// the sums start again with them. `own`: the pool's layer of summaries.
void forget_sums(const DynamicPattern& pattern, const KvLayer& own, KvPool& kv, const int32_t* table, int64_t kv_head,
                 int64_t block);

// Marks the blocks that sums let the queries of block `query_block` see, in addition to those of mark(), which are
// marked.
void mark_sums(KvPool& kv, const AttentionLayer& layer, const DynamicPattern& pattern, const int32_t* table,
               int64_t kv_head, int64_t query_block, BlockMarks& marks);

}  // namespace millrace
