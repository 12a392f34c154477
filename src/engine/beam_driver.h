// BeamDriver: runs beam searches. It hands the executor's log-probabilities to BeamSearch, and shares and releases
// blocks as beams fork and end: a fork shares the full blocks and copies the partly filled one. A search is admitted
// whole, on width x longest blocks, and is never preempted, so a fork always finds a block.
#pragma once

#include <vector>

#include "engine/beam_group.h"
#include "engine/block_ledger.h"
#include "engine/loop_context.h"
#include "engine/stream_closer.h"

namespace millrace {

class BeamDriver {
 public:
  BeamDriver(LoopContext& loop, StreamLists& lists, BlockLedger& ledger, StreamCloser& closer)
      : loop_(loop), lists_(lists), ledger_(ledger), closer_(closer) {}

  // The first slot was admitted: the others follow.
  void admit(BeamGroup& group);
  // Takes the likeliest next tokens of one beam, from row `row` of the last forward pass; with those of the last beam
  // the search advances. False: the search is over.
  bool commit(LiveStream& stream, int64_t row, std::vector<TokenEvent>& events);
  // Emits the answers, best first, and releases all that the search holds. `reason` is that of unfinished beams.
  void finish(BeamGroup& group, FinishReason reason, std::vector<TokenEvent>& events);
  // Ends every answer with an event that has the error.
  void fail(BeamGroup& group, const Error& error, std::vector<TokenEvent>& events);

 private:
  void release(BeamGroup& group, FinishReason reason);
  void advance(BeamGroup& group, const std::vector<BeamSearch::Next>& next);
  void fork(LiveStream& parent, LiveStream& child);
  void promise_blocks(BeamGroup& group);
  void emit(BeamGroup& group, int64_t answer, const BeamAnswer& beam, FinishReason reason, bool last,
            std::vector<TokenEvent>& events);

  LoopContext& loop_;
  StreamLists& lists_;
  BlockLedger& ledger_;
  StreamCloser& closer_;
};

}  // namespace millrace
