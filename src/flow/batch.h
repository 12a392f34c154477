// Batch: flat arrays for one forward pass, built only from a StepPlan. Prefill chunks and single decode
// tokens are the same thing: a span of n >= 1 tokens of one stream.
//
//   tokens     [ s0 s0 s0 s0 | s1 | s2 s2 ]     spans[0].count = 4, spans[1].count = 1, spans[2].count = 2
//   positions  [  0  1  2  3 | 57 |  8  9 ]
//   output_rows: indices into tokens whose logits are needed, ascending
#pragma once

#include <cstdint>
#include <vector>

#include "millrace/token.h"

namespace millrace {

struct BatchSpan {
  int64_t begin = 0;       // first token, index into Batch::tokens
  int64_t count = 0;       // tokens
  int64_t first_slot = 0;  // the stream's slot of the first token; slots [0, first_slot) are already stored
  int64_t table = 0;       // start of the stream's block table in Batch::block_tables
  int64_t table_size = 0;  // blocks; covers slots [0, first_slot + count)
  int32_t state = 0;       // the stream's slot of recurrent states or of its KV tail, where it has one
  int32_t chunk = 0;       // index of this span, or of the one that it was a part of, in the batch of the whole pass
};

// A token that is given as its row of the embedding table, before the model's scaling, instead of by its id.
struct BatchEmbedding {
  int64_t token = 0;           // index into Batch::tokens, whose entry is not used
  const float* row = nullptr;  // [width]
};

struct Batch {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<BatchSpan> spans;
  std::vector<int32_t> block_tables;
  std::vector<int32_t> output_rows;
  std::vector<BatchEmbedding> embeddings;  // ascending

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  void clear() {
    tokens.clear();
    positions.clear();
    spans.clear();
    block_tables.clear();
    output_rows.clear();
    embeddings.clear();
  }
};

}  // namespace millrace
