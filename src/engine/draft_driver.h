// DraftDriver: the drafters and the acceptance of one engine. Before chunks are planned it stores a draft in every
// decoding stream, of the drafter whose draft is expected to bring most, and as much of it as pays; after a step it
// decides which drafted tokens are kept. A drafter with a model of its own drafts when the chunks are planned: until
// then a draft has its length only. Without a drafter it does nothing.
//
// Which drafter drafts for a stream depends on the stream's tokens alone, so recorded plans, which have the lengths,
// can be replayed. Lengths depend on measured times.
#pragma once

#include <array>
#include <memory>

#include "engine/loop_context.h"
#include "engine/stream_lists.h"
#include "run/engine_plan.h"
#include "run/executor.h"
#include "schedule/decode_times.h"
#include "speculate/draft_length.h"
#include "speculate/trial_steps.h"

namespace millrace {

class DraftDriver {
 public:
  // Takes the drafter and the acceptance out of the plan. Errors: internal (too long drafts).
  static Result<DraftDriver> create(EnginePlan& plan);

  // The loop that it works for, which has its executor and its cost model. Errors: unsupported (the executor does not
  // run the drafter's model).
  Result<void> attach(LoopContext& loop);

  const Acceptance& acceptance() const { return *acceptance_; }
  void propose(const StreamLists& lists);
  // Drafts for a recorded plan, which says how much of each one runs.
  void propose_whole(const StreamLists& lists);
  // Before and after the step's pass: a drafter with a model runs it for all chunks. True: it drafted less than was
  // planned, and the chunks were shortened.
  bool before_pass(std::span<StepWork> work);
  void after_pass(std::span<const StepWork> work);
  // The drafted token, of `count` that ran, that the stream's last token keeps, which was sampled behind drafted token
  // `at`; -1: none.
  int64_t next(const Sequence& stream, int64_t at, int64_t count) const {
    return kept_child(stream.draft, at, count, stream.tokens.back());
  }
  // After a step that ran `count` drafted tokens; `row` is that of the stream's own last token.
  void observe(LiveStream& stream, int64_t count, int64_t committed, int64_t row, Executor& executor);
  // After the tokens of the step have been chosen: how long it took.
  void end_step();

 private:
  bool may_draft(const LiveStream& stream) const;
  void offer(LiveStream& stream);
  void draft(LiveStream& stream, int64_t most);
  void judge(LiveStream& stream);
  double expected(const StreamDrafts::Member& member, const Draft& draft) const;
  double share(const LiveStream& stream, int64_t place) const;
  void choose_lengths(const StreamLists& lists);
  DraftEstimate estimate_lengths(const StepShape& plain);
  void decide(const DraftEstimate& best);
  bool run_model(std::span<StepWork> work);
  // Of the drafter's model, a pass for a token of every draft; of all drafts, and of the longest one.
  double pass_seconds(int64_t tokens, int64_t longest) const;
  size_t pass_index(int64_t tokens, int64_t longest) const;
  void gather(std::span<const StepWork> work);
  size_t members() const { return drafter_->model ? 1 : drafter_->texts.size(); }
  std::shared_ptr<DraftMemory> remember(size_t member) const;
  void learn(const Sequence& stream, int64_t count, int64_t committed, int64_t row, Executor& executor);

  LoopContext* loop_ = nullptr;
  std::unique_ptr<Drafter> drafter_;  // null: none
  std::vector<KeptShares> shares_;    // of all streams' drafts, by member
  std::vector<Draft> drafts_;         // scratch, by member
  bool automatic_ = false;            // chooses lengths
  bool learns_times_ = false;         // no cost model was given
  int64_t longest_ = 0;
  bool trees_ = false;
  DraftModel* model_ = nullptr;     // the drafter's, which is the executor's; null: it has none
  std::vector<DraftChunk> chunks_;  // of the step
  std::unique_ptr<Acceptance> acceptance_;
  std::vector<TokenId> probed_, best_;
  // Choosing lengths
  std::vector<LiveStream*> offered_;  // those with a draft, in this step
  DraftLengths lengths_;
  TrialSteps trials_;
  DecodeTimes times_;
  double prior_ = 0;                      // share of tokens kept where nothing is known
  double window_kept_ = 0;                // tokens that steps with probes have kept, on average
  std::array<double, 8> pass_seconds_{};  // of the drafter's model, by octave of its streams; 0: not known
  int64_t pass_began_ns_ = 0;
  int64_t step_tokens_ = 0;  // 0: it computes prompts, too
};

}  // namespace millrace
