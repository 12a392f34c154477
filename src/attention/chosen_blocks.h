// Attention of queries that choose their own blocks (attention/dynamic_pattern.h). Queries of a unit see different
// blocks, and no kernel has a mask, so keys are read block by block. For each block, the queries that chose it are
// gathered, and each one's partial result is joined to its total.
//
//   queries        0  1  2  3        block 0: queries 0 2 3     block 1: query 1     own block: all
//   choice of 0, 1 0  1  0  0
//
// Partials are joined in the order of the blocks, with the query's own block last, so a query's bits depend on its own
// choice alone. A query that sees every block is computed as without a pattern, with the same bits. Heads whose queries
// do not choose (HeadChoice) are computed as with a static pattern.
#pragma once

#include "attention/block_sparse.h"
#include "attention/dynamic_pattern.h"

namespace millrace {

// Returns the floats of one worker's scratch, for units of at most `queries` queries of one block; 0 without a dynamic
// pattern.
int64_t chosen_blocks_floats(const DynamicPattern* pattern, int64_t context, int64_t queries, int64_t group,
                             int64_t head_dim);

// Variant of attend_blocks() for a dynamic pattern. `choice`: chosen_blocks_floats() floats.
void attend_chosen(const VisibleUnit& unit, const DynamicPattern& pattern, const Partial& total, const Partial& scratch,
                   const uint8_t** pointers, float* choice);

// Returns the arguments of a kernel call for keys [0, keys) of one block, except the queries. `pattern_block`: tokens
// of a block.
AttentionArgs block_args(const VisibleUnit& unit, int64_t pattern_block, int64_t block, int64_t keys, const Partial& to,
                         const uint8_t** pointers);

// Marks all blocks that a token's query sees; used by observers of attention. `q`: queries of the KV head's query
// heads, [group, head_dim], next to those of the other KV heads (DynamicPattern::judge()). `features`: room for
// summary_floats() floats. `scores`: room for a float for each block before query_block. `work`: room for
// choose_work_floats() floats.
void choose_blocks(KvPool& kv, const AttentionLayer& layer, const AttentionPattern& pattern, const int32_t* table,
                   int64_t kv_head, int64_t query_block, const float* q, float* features, float* scores, float* work,
                   BlockMarks& marks);
int64_t choose_work_floats(const AttentionPattern& pattern, int64_t blocks);

}  // namespace millrace
