// LiveStream: all that the engine holds for one open stream: the sequence that the planner sees, what its executor
// keeps, and what beams, contexts, the prefix store and the swap tier need for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "context/document_context.h"
#include "exit/exit_gate.h"
#include "flow/step_plan.h"
#include "kv/state_pool.h"
#include "kv/tiers/tier.h"
#include "kv/token_eviction.h"
#include "run/executors/step_input.h"
#include "speculate/stream_drafts.h"

namespace millrace {

class AnswerGroup;
struct BeamGroup;

// A lookup of the stream's blocks in the prefix store.
struct PrefixLookup {
  TierTicket ticket = 0;  // 0: no lookup
  int64_t deadline = 0;   // on the engine's clock, ns; then the stream computes its tokens
  int64_t held = 0;       // blocks behind the computed tokens that the prefix index has, without a state behind them

  bool active() const { return ticket != 0; }
};

// Blocks of the stream that are being loaded from the prefix store.
struct PrefixLoad {
  TierTicket ticket = 0;  // 0: no load
  int64_t blocks = 0;
  int64_t held = 0;      // the first of these blocks are those of the prefix index, and are not loaded
  int64_t from = 0;      // tokens before the loaded blocks
  int64_t left_out = 0;  // tokens among the loaded ones that are not loaded
  int64_t deadline = 0;  // as above
  bool late = false;     // given up during a pass; the store has forgotten the ticket
  int64_t arrived = 0;   // late: leading blocks that had arrived by then
  StateId state = -1;    // slot, lent by the prefix index, that receives the recurrent state; -1: none

  bool active() const { return ticket != 0; }
};

// Blocks [first, end) of the stream that are put into the store as soon as they are computed: it has lost them or found
// them damaged, or it is shared.
struct StoreRepair {
  int64_t first = 0, end = 0;
};

// Where the stream takes copies of its recurrent state for the prefix cache, in computed tokens
// (engine/state_copies.h).
struct StatePoints {
  int64_t prompt = 0;             // the last multiple of the stride in its prompt; 0: none
  std::vector<int64_t> branches;  // where others need one
  int64_t last = 0;               // computed tokens at its newest copy; 0: none
  // Computed tokens before its prompt's last one, if further answers of the request begin with the state there.
  int64_t fork = 0;        // 0: none
  int64_t forks = 0;       // answers that have not begun
  StateId fork_slot = -1;  // slot of the state, while it is held; -1: none
};

struct LateMask;  // engine/mask_worker.h

struct LiveStream {
  Sequence sequence;
  ExecutorStream own;                   // the executor's data of this stream
  std::shared_ptr<LateMask> late_mask;  // work on its next token that another thread does; null: none
  bool cancelled = false;
  bool ended = false;
  bool read_failed = false;  // the prompt's reader threw
  double logprob_sum = 0;
  std::shared_ptr<AnswerGroup> answers;     // the whole request's; null: this is the only one
  std::shared_ptr<BeamGroup> beams;         // the beam search that it belongs to; null: none
  KvRange range;                            // its range of the pool, while it holds blocks
  TierTicket ticket = 0;                    // its ticket in the swap tier, while swapping out, swapped or loading
  std::unique_ptr<TokenEviction> eviction;  // null: all its keys and values are kept
  std::shared_ptr<const ExitGate> exit;     // null: its tokens run every layer
  ContextPlan context;                      // how its documents become keys; without parts: a prompt like any other
  std::vector<KeySegment> sees;             // context.sees in the slots that an evictor leaves (note_eviction())
  int64_t sees_lists = 1;                   // VisibleKeys::segment_heads
  std::vector<size_t> stale;                // complete parts, some tokens of which are to be computed again
  std::shared_ptr<const DocumentTokens> encoded;  // documents that an encoder reads; null: none
  PrefixLookup lookup;
  PrefixLoad load;
  StoreRepair repair;
  StatePoints states;
  std::unique_ptr<StreamDrafts> drafts;  // the engine's record of its drafts; null: none yet
  std::vector<float> importance;         // observed, of its first blocks; see kv/prefix_evictor.h

  StreamRef ref() { return {sequence, own}; }
  // For a chunk of a step.
  StepSource source() { return {ref(), context, sees, sees_lists, eviction.get(), exit.get()}; }
};

// One chunk of a step and its stream, whose blocks cover the chunk.
struct StepWork {
  LiveStream* stream = nullptr;
  PlannedChunk chunk;
  bool lost = false;  // ran over keys that turned out damaged: does not count
};

}  // namespace millrace
