#include "engine/draft_driver.h"

#include <algorithm>

namespace millrace {

Result<DraftDriver> DraftDriver::create(const EngineOptions& options, std::unique_ptr<Drafter> drafter) {
  DraftDriver driver;
  driver.drafter_ = std::move(drafter);
  if (!driver.drafter_ && !options.drafter.empty()) {
    MILLRACE_TRY(driver.drafter_, make_drafter(options.drafter));
  }
  MILLRACE_TRY(driver.acceptance_, make_acceptance(options.acceptance));
  return driver;
}

void DraftDriver::propose(const StreamLists& lists) {
  if (!drafter_) return;
  for (const StreamPtr& stream : lists.running()) {
    Sequence& s = stream->sequence;
    std::vector<TokenId>& draft = s.draft.tokens;
    draft.clear();
    if (s.phase != StreamPhase::running || s.held_back || !s.decoding() || stream->beams) continue;
    // The step samples one token more than it keeps of the draft.
    const int64_t most = std::min(drafter_->longest(), s.max_total - s.size() - 1);
    if (most <= 0) continue;
    draft.reserve(static_cast<size_t>(drafter_->longest()));
    drafter_->propose(s, most, draft);
    if (std::ssize(draft) > most) draft.resize(static_cast<size_t>(most));
  }
}

}  // namespace millrace
