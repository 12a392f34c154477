// DraftDriver: the drafter and the acceptance of one engine. Before chunks are planned it stores a draft in every
// decoding stream; after a step it decides which drafted tokens are kept. Without a drafter it does nothing.
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

  const Acceptance& acceptance() const { return *acceptance_; }
  // Trees do not go with what moves or drops keys and values by position. Errors: unsupported.
  Result<void> check_evictor() const;
  void propose(const StreamLists& lists);
  // The drafted token, of `count` that ran, that the stream's last token keeps, which was sampled behind drafted token
  // `at`; -1: none.
  int64_t next(const Sequence& stream, int64_t at, int64_t count) const {
    return kept_child(*acceptance_, stream.draft, at, count, stream.tokens.back());
  }
  // After a step that ran `count` drafted tokens; `row` is that of the stream's own last token.
  void observe(const Sequence& stream, int64_t count, int64_t committed, int64_t row, Executor& executor);

 private:
  std::unique_ptr<Drafter> drafter_;  // null: none
  std::unique_ptr<Acceptance> acceptance_;
  std::vector<TokenId> probed_;
};

}  // namespace millrace
