// PlacedDocuments: the work of a stream at the borders of its context's parts (context/document_context.h). Where a
// part begins, the stream takes the rows that the prefix cache holds of it. Where it ends, the stream leaves a copy in
// the cache and moves the part's keys to their positions in the prompt. Both copy rows, since a part begins anywhere in
// a block. Tokens of the part that are computed again are noted for the stream's next step.
//
// If a codec encodes the KV cache, the executor computes parts in separate rows, which are then encoded as the stream's
// (ContextPlan::placed). The prefix cache then holds blocks of other streams.
//
// A step copies and moves about as many tokens as it may run, over all streams together, so that other streams continue
// between the documents of a long prompt. A stream that waits for its next documents stays at its border, and is not
// planned.
#pragma once

#include "engine/block_ledger.h"
#include "engine/loop_context.h"
#include "kv/prefix_index.h"

namespace millrace {

class PlacedDocuments {
 public:
  // `index` may be null: nothing is shared.
  PlacedDocuments(LoopContext& loop, BlockLedger& ledger, PrefixIndex* index)
      : loop_(loop), ledger_(ledger), index_(index) {}

  // Called before a step, which copies and moves about `tokens` tokens.
  void begin_step(int64_t tokens) { left_ = tokens, worked_ = false; }
  // Called when the stream was admitted: the index may hold the beginning of its prompt.
  void begin(LiveStream& stream);
  // Called whenever more of the stream's tokens are counted as computed, and in every step while it waits. No chunk
  // crosses a border.
  void run(LiveStream& stream);
  bool worked() const { return worked_; }  // copied or moved something, in this step

 private:
  void place(LiveStream& stream);
  void take_placed(Sequence& s, int64_t count, int64_t known);
  void take_start(LiveStream& stream, const ContextPart& first);
  void take(LiveStream& stream, const ContextPart& part);
  bool take_rows(LiveStream& stream, const ContextPart& part, int64_t from, int64_t most);
  void leave(const LiveStream& stream, const ContextPart& part);

  LoopContext& loop_;
  BlockLedger& ledger_;
  PrefixIndex* index_;
  int64_t left_ = INT64_MAX;  // tokens of this step
  bool worked_ = false;
};

// Copies what the planner needs of the stream's parts. Without parts it does nothing.
void note_border(LiveStream& stream);

}  // namespace millrace
