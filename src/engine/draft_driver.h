// DraftDriver: the drafter and the acceptance of one engine. Before chunks are planned it stores a draft in every
// decoding stream; after a step it decides which drafted tokens are kept. Without a drafter it does nothing.
#pragma once

#include <memory>

#include "engine/stream_lists.h"
#include "millrace/options.h"
#include "speculate/acceptance.h"
#include "speculate/drafter.h"

namespace millrace {

class DraftDriver {
 public:
  // Made from the options; a `drafter` that is not null replaces theirs. Errors: user.
  static Result<DraftDriver> create(const EngineOptions& options, std::unique_ptr<Drafter> drafter = nullptr);

  const Acceptance& acceptance() const { return *acceptance_; }
  void propose(const StreamLists& lists);
  // Whether the stream's last token, sampled where `index` drafted tokens had been kept, keeps one more.
  bool keeps(const Sequence& stream, int64_t index) const {
    return acceptance_->keeps(stream.draft.tokens[static_cast<size_t>(index)], stream.tokens.back());
  }

 private:
  std::unique_ptr<Drafter> drafter_;  // null: none
  std::unique_ptr<Acceptance> acceptance_;
};

}  // namespace millrace
