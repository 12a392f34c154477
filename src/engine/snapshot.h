// The state that a client that watches the engine sees between two steps: the streams, and which of them hold which
// blocks.
//
//   pool's ids     0 1 2 3 4 5 6 7 8 ...
//   owner          - - 0 0 0 1 1 - -      the first stream that holds it
//   streams        0 0 2 2 1 1 1 0 0      that hold it
//   cached         . x x x . . . x .      the prefix index holds it too
//   as runs        1   1 2   1 2   1 1
#pragma once

#include "engine/block_ledger.h"
#include "engine/loop_context.h"
#include "engine/snapshot_recorder.h"
#include "engine/stream_lists.h"

namespace millrace {

// With the steps and ended streams since the last snapshot, which `recorder` hands over.
EngineSnapshot take_snapshot(const LoopContext& loop, const StreamLists& lists, const BlockLedger& ledger,
                             SnapshotRecorder& recorder);

}  // namespace millrace
