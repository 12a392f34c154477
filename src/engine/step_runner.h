// StepRunner: runs the chunks of a plan as one batch, counts the computed tokens, samples the next tokens and emits
// their events. A chunk whose blocks cannot be found after all leaves the plan, and its stream is preempted.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "engine/admission.h"
#include "engine/beam_driver.h"
#include "engine/draft_driver.h"
#include "engine/placed_documents.h"
#include "engine/snapshot_recorder.h"
#include "engine/state_copies.h"
#include "engine/stream_closer.h"
#include "engine/token_evictions.h"

namespace millrace {

class StepRunner {
 public:
  StepRunner(LoopContext& loop, StreamLists& lists, BlockLedger& ledger, Admission& admission, StoreLoads& loads,
             StreamCloser& closer, BeamDriver& beams, DraftDriver& drafts, SnapshotRecorder& recorder,
             PrefixCache& cache, StateCopies& states)
      : loop_(loop),
        lists_(lists),
        ledger_(ledger),
        admission_(admission),
        loads_(loads),
        closer_(closer),
        beams_(beams),
        drafts_(drafts),
        recorder_(recorder),
        cache_(cache),
        states_(states),
        evictions_(loop, ledger),
        documents_(loop, ledger, cache.index()) {
    work_.reserve(static_cast<size_t>(loop.limits.max_streams));
    choices_.reserve(static_cast<size_t>(loop.limits.max_streams));
    input_.tables = loop.executor->limits().reads_tables;
    input_.reserve(loop.kv(), loop.limits.max_streams, loop.limits.batch_tokens, loop.context());
  }

  // Writes every plan that runs to the file, one a line. Errors: user (it cannot be written).
  Result<void> record_plans(const std::string& path);
  // Returns true if the plan's chunks match the streams and the limits of a step; a plan from outside may not.
  bool fits(const StepPlan& plan) const;
  // Before streams are admitted: documents that the last steps have left to be copied.
  void begin_step(bool replayed);
  void admitted(LiveStream& stream) { documents_.begin(stream); }
  // `replayed`: a recorded plan, all of whose chunks run.
  void run(StepPlan& plan, std::vector<TokenEvent>& events, bool replayed = false);
  bool ran() const { return !work_.empty(); }                     // the last run() had a chunk
  bool waits() const { return encoded_ || documents_.worked(); }  // ... or documents of one were read or copied
  // The keys and values of all streams are lost: ends those that have some, and empties the prefix cache.
  void end_stored(std::vector<TokenEvent>& events);
  // Ends streams that were cancelled or have reached their time limit.
  void end_cancelled(std::vector<TokenEvent>& events);

 private:
  StepShape gather(StepPlan& plan, bool replayed);
  bool reserve(LiveStream& stream, PlannedChunk& chunk);
  void forward(const StepPlan& plan, StepShape shape);
  void take_output();
  bool reads() const;  // rows for a PromptReader, in this step
  void count_computed(double seconds);
  void fail(const Error& error, std::vector<TokenEvent>& events);
  void end_unread(std::vector<TokenEvent>& events);
  void sample(std::vector<TokenEvent>& events);
  void give_back(const StepWork& item);
  bool commit_chunk(const StepWork& item, int64_t row, std::vector<TokenEvent>& events);
  void count_positions(DraftState& draft, int64_t candidates);
  void keep_drafted(LiveStream& stream, int64_t position, int64_t beyond);
  bool commit(LiveStream& stream, int64_t row, std::vector<TokenEvent>& events);

  LoopContext& loop_;
  StreamLists& lists_;
  BlockLedger& ledger_;
  Admission& admission_;
  StoreLoads& loads_;
  StreamCloser& closer_;
  BeamDriver& beams_;
  DraftDriver& drafts_;
  SnapshotRecorder& recorder_;
  PrefixCache& cache_;
  StateCopies& states_;
  TokenEvictions evictions_;
  PlacedDocuments documents_;
  std::vector<StepWork> work_;
  StepInput input_;  // the last step's
  StepOutput output_;
  std::vector<ChoiceWork> choices_;
  bool encoded_ = false;
  std::ofstream plans_;
};

}  // namespace millrace
