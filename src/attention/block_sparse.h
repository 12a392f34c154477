// Attention of queries that see the blocks of a pattern (attention/pattern.h), with any kernel and no mask. The keys of
// the blocks that a block of queries sees are numbered from 0 in the order of their slots. The kernel receives the
// addresses of their blocks, as if a stream held nothing else:
//
//   stream   0 1 2 3 4 5 6 7     query block 7 sees blocks 0 4 6 7     to the kernel: blocks 0 1 2 3, its own the last
//
// Blocks that are not seen are not read and cost nothing. Partitions hold 256 keys by this numbering, so a pattern of
// all blocks gives the same bits as attention without a pattern. A unit of work lies within one block of queries, and
// its borders depend on the stream alone. Its keys are read once for all its queries.
#pragma once

#include "attention/partial.h"
#include "attention/pattern.h"
#include "attention/visible_keys.h"

namespace millrace {

// Cuts the queries of a span into units: every `tile` tokens, counted from the beginning of each block.
struct SparseTiles {
  int64_t block;
  int64_t tile;

  int64_t each() const { return (block + tile - 1) / tile; }  // units of a block
  int64_t tile_of(int64_t slot) const { return slot / block * each() + slot % block / tile; }
  int64_t first_slot(int64_t index) const { return index / each() * block + index % each() * tile; }
  int64_t end_slot(int64_t index) const { return std::min(first_slot(index) + tile, (index / each() + 1) * block); }
  int64_t count(const BatchSpan& span) const {
    return tile_of(span.first_slot + span.count - 1) - tile_of(span.first_slot) + 1;
  }
};

// Returns the layer's pattern. Null: there is none, or the layer has a window shorter than `context`.
const AttentionPattern* pattern_of(const AttentionLayer& layer, int64_t context);

// Writes the result of the unit's queries to `total`. The queries must lie in one block of a static pattern. A tree,
// segments or block lists of the span are ignored. `scratch`: a partial with as many rows as `total`. `pointers`: room
// for attention_scratch_pointers() pointers.
void attend_blocks(const VisibleUnit& unit, const AttentionPattern& pattern, const Partial& total,
                   const Partial& scratch, const uint8_t** pointers);

// Variant for queries that see the marked blocks, of `block` tokens each, before their own block.
void attend_marked(const VisibleUnit& unit, int64_t block, const BlockMarks& marks, const Partial& total,
                   const Partial& scratch, const uint8_t** pointers);

}  // namespace millrace
