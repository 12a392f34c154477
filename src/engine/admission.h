// Admission: moves streams between the queue and the running streams as the plan says. An admitted stream receives its
// promised blocks, and the stored keys and values of its tokens: its own swapped ones, those of the prompt of its
// request's first answer, or those of a prefix. A preempted stream is swapped out, or releases its blocks and returns
// to the queue.
#pragma once

#include "engine/block_ledger.h"
#include "engine/loop_context.h"
#include "engine/prefix_service.h"
#include "engine/store_loads.h"
#include "engine/swap.h"
#include "flow/step_plan.h"

namespace millrace {

class Admission {
 public:
  Admission(LoopContext& loop, StreamLists& lists, BlockLedger& ledger, PrefixService& prefixes, StoreLoads& loads,
            Swap& swap, StateCopies& states)
      : loop_(loop), lists_(lists), ledger_(ledger), prefixes_(prefixes), loads_(loads), swap_(swap), states_(states) {}

  // Before planning: further answers of a request wait until the first one's prompt is stored, to share its blocks.
  void mark_answers();
  LiveStream* admit(RequestId stream);                // null: no such stream is in the queue
  bool preempt(const PlannedPreemption& preemption);  // false: the stream cannot be preempted now

 private:
  bool share_prompt(LiveStream& stream);

  LoopContext& loop_;
  StreamLists& lists_;
  BlockLedger& ledger_;
  PrefixService& prefixes_;
  StoreLoads& loads_;
  Swap& swap_;
  StateCopies& states_;
};

}  // namespace millrace
