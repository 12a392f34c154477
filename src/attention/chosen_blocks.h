// Attention of queries that choose their own blocks (attention/dynamic_pattern.h). Queries of a unit see different
// blocks, and no kernel has a mask, so keys are read block by block. The queries that chose a block are gathered; the
// block's partial result of each is joined to the query's total.
//
//   queries        0  1  2  3        block 0: queries 0 2 3     block 1: query 1     own block: all
//   choice of 0, 1 0  1  0  0
//
// Joins are in the order of the blocks, with the query's own block last, so a query's bits depend on its own choice
// alone. A query that sees every block is computed as without a pattern, and has the same bits. Heads whose queries do
// not choose (HeadChoice) are computed as by a static pattern.
#pragma once

#include "attention/block_sparse.h"
#include "attention/dynamic_pattern.h"

namespace millrace {

// Floats of a worker's scratch for units of at most `queries` queries of one block; 0 without a dynamic pattern.
int64_t chosen_blocks_floats(const DynamicPattern* pattern, int64_t context, int64_t queries, int64_t group,
                             int64_t head_dim);

// As attend_blocks(); `choice` has chosen_blocks_floats().
void attend_chosen(const VisibleUnit& unit, const DynamicPattern& pattern, const Partial& total, const Partial& scratch,
                   const uint8_t** pointers, float* choice);

// Arguments of a call for keys [0, keys) of one block, `pattern_block` tokens each: all but the queries.
AttentionArgs block_args(const VisibleUnit& unit, int64_t pattern_block, int64_t block, int64_t keys, const Partial& to,
                         const uint8_t** pointers);

// Marks all blocks that a token's query sees; used by observers of attention. `q`: queries of the KV head's query
// heads, [group, head_dim]. `features`: room for summary_floats() floats. `scores`: room for a float for each block
// before query_block. `work`: room for choose_work_floats() floats.
void choose_blocks(KvPool& kv, const AttentionLayer& layer, const AttentionPattern& pattern, const int32_t* table,
                   int64_t kv_head, int64_t query_block, const float* q, float* features, float* scores, float* work,
                   BlockMarks& marks);
int64_t choose_work_floats(const AttentionPattern& pattern, int64_t blocks);

}  // namespace millrace
