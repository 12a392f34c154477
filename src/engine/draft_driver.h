// DraftDriver: the drafter and the acceptance of one engine. Before chunks are planned it stores a draft in every
// decoding stream; after a step it decides which drafted tokens are kept. A drafter with a model of its own drafts when
// the chunks are planned: until then a draft has its length only. Without a drafter it does nothing.
#pragma once

#include <memory>

#include "engine/stream_lists.h"
#include "millrace/options.h"
#include "run/executor.h"
#include "speculate/acceptance.h"
#include "speculate/drafter.h"

namespace millrace {

class DraftDriver {
 public:
  // Made from the options; a `drafter` that is not null replaces theirs. Errors: user.
  static Result<DraftDriver> create(const EngineOptions& options, std::unique_ptr<Drafter> drafter = nullptr);

  // Gives the drafter its model, if it has one, and the engine's vocabulary; `model` outlives the driver. Errors:
  // unsupported (it is null).
  Result<void> attach(DraftModel* model, int64_t vocab);

  const Acceptance& acceptance() const { return *acceptance_; }
  // Trees do not go with what moves or drops keys and values by position. Errors: unsupported.
  Result<void> check_evictor() const;
  void propose(const StreamLists& lists);
  // Before and after the step's pass: a drafter with a model runs it for all chunks.
  void before_pass(std::span<const StepWork> work);
  void after_pass(std::span<const StepWork> work);
  // The drafted token, of `count` that ran, that the stream's last token keeps, which was sampled behind drafted token
  // `at`; -1: none.
  int64_t next(const Sequence& stream, int64_t at, int64_t count) const {
    return kept_child(*acceptance_, stream.draft, at, count, stream.tokens.back());
  }
  // After a step that ran `count` drafted tokens; `row` is that of the stream's own last token.
  void observe(const Sequence& stream, int64_t count, int64_t committed, int64_t row, Executor& executor);

 private:
  void gather(std::span<const StepWork> work);
  void learn(const Sequence& stream, int64_t count, int64_t committed, int64_t row, Executor& executor);

  std::unique_ptr<Drafter> drafter_;  // null: none
  DraftModel* model_ = nullptr;       // the drafter's, which is the executor's; null: it has none
  std::vector<DraftChunk> chunks_;    // of the step
  std::unique_ptr<Acceptance> acceptance_;
  std::vector<TokenId> probed_, best_;
};

}  // namespace millrace
