// PrefixService: gives an admitted stream the blocks that already hold the beginning of its tokens. They are found in
// the prefix index, and behind those in the prefix store (store_loads.h). If another running stream is computing the
// same beginning, the new one waits for that donor. So many requests that arrive together with one long prefix compute
// it once.
//
//   running   a: [prefix........|rest]   donor: computes
//             b: [prefix........|other]  holds its place and no blocks until a has computed the common full blocks,
//                                        then finds them in the index
#pragma once

#include "engine/block_ledger.h"
#include "engine/prefix_cache.h"
#include "engine/state_copies.h"
#include "engine/store_loads.h"

namespace millrace {

class PrefixService {
 public:
  PrefixService(StreamLists& lists, BlockLedger& ledger, PrefixCache& cache, StoreLoads& loads, StateCopies& states)
      : lists_(lists), ledger_(ledger), cache_(cache), loads_(loads), states_(states) {}

  // For a stream without blocks, when it is admitted: finds its prefix, or makes it wait for a donor.
  void attach(LiveStream& stream);
  // Before each step: ends the waits for donors that have computed enough, stall, or no longer run.
  void end_waits();
  // Releases a stream's blocks; what a running stream has computed stays in the index.
  void release(LiveStream& stream);
  // The stream is about to be preempted: its own wait is over, and what it has computed is there for those that wait
  // for it.
  void stop_sharing(LiveStream& stream);

 private:
  bool wait_for_donor(LiveStream& stream);
  void end_wait(LiveStream& stream, bool again);
  void find(LiveStream& stream);

  StreamLists& lists_;
  BlockLedger& ledger_;
  PrefixCache& cache_;
  StoreLoads& loads_;
  StateCopies& states_;
};

}  // namespace millrace
