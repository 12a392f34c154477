// PlacedDocuments: what a stream does at the borders of its context's parts (context/document_context.h). Where a part
// begins, it takes what the prefix cache holds of it; where it ends, it leaves a copy there and moves the part's keys
// to their positions in the prompt. Both copy rows, since a part begins anywhere in a block. What of the part is
// computed again is noted for the stream's next step.
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

  // Called when the stream was admitted: the index may hold the beginning of its prompt.
  void begin(LiveStream& stream);
  // Called whenever more of the stream's tokens are counted as computed. No chunk crosses a border.
  void run(LiveStream& stream);

 private:
  void take_start(LiveStream& stream, const ContextPart& first);
  void take(LiveStream& stream, const ContextPart& part);
  void take_rows(LiveStream& stream, const ContextPart& part, int64_t from, int64_t most);
  void leave(const LiveStream& stream, const ContextPart& part);

  LoopContext& loop_;
  BlockLedger& ledger_;
  PrefixIndex* index_;
};

// Copies what the planner needs of the stream's parts. Without parts it does nothing.
void note_border(LiveStream& stream);

}  // namespace millrace
