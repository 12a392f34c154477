#include "engine/draft_driver.h"

#include <algorithm>

#include "speculate/prediction.h"

namespace millrace {
namespace {

void shorten(Draft& draft, int64_t most) {
  if (draft.size() <= most) return;
  draft.probes = std::max<int64_t>(0, draft.probes - (draft.size() - most));
  draft.tokens.resize(static_cast<size_t>(most));
  if (!draft.parents.empty()) draft.parents.resize(static_cast<size_t>(most));
}

}  // namespace

Result<DraftDriver> DraftDriver::create(const EngineOptions& options, std::unique_ptr<Drafter> drafter) {
  DraftDriver driver;
  driver.drafter_ = std::move(drafter);
  if (!driver.drafter_ && !options.drafter.empty()) {
    MILLRACE_TRY(driver.drafter_, make_drafter(options.drafter));
  }
  MILLRACE_TRY(driver.acceptance_, make_acceptance(options.acceptance));
  return driver;
}

Result<void> DraftDriver::attach(DraftModel* model, int64_t vocab) {
  if (drafter_) {
    drafter_->begin(vocab);
    best_.resize(static_cast<size_t>(std::min(drafter_->learns(), vocab)));
  }
  if (!drafter_ || !drafter_->has_model()) return {};
  if (!model) return Error::unsupported("drafter: this executor runs no second model; use ngram or lookahead");
  model_ = model;
  return {};
}

void DraftDriver::propose(const StreamLists& lists) {
  if (!drafter_) return;
  for (const StreamPtr& stream : lists.running()) {
    Sequence& s = stream->sequence;
    Draft& draft = s.draft;
    draft.clear();
    if (s.phase != StreamPhase::running || s.held_back || !s.decoding() || stream->beams) continue;
    // The step samples one token more than it keeps of the draft.
    const int64_t most = std::min(drafter_->longest(), s.max_total - s.size() - 1);
    if (most <= 0) continue;
    draft.tokens.reserve(static_cast<size_t>(drafter_->longest()));
    if (model_) {
      if (stream->load.active()) continue;                // blocks of its last layers may still be on their way
      draft.tokens.assign(static_cast<size_t>(most), 0);  // set by before_pass()
      continue;
    }
    if (drafter_->trees()) draft.parents.reserve(static_cast<size_t>(drafter_->longest()));
    if (!s.draft.memory) s.draft.memory = drafter_->remember(s);
    draft_predicted(s, most, draft.tokens);
    if (draft.size() > 0) continue;
    drafter_->propose_tree(s, most, draft);
    shorten(draft, most);
  }
}

void DraftDriver::gather(std::span<const StepWork> work) {
  chunks_.clear();
  for (const StepWork& item : work)
    if (!item.lost)
      chunks_.push_back({item.stream, &item.stream->sequence, item.chunk.first, item.chunk.own(), item.chunk.drafted});
}

void DraftDriver::before_pass(std::span<const StepWork> work) {
  if (!model_) return;
  gather(work);
  drafter_->propose_all(chunks_, *model_);
}

void DraftDriver::after_pass(std::span<const StepWork> work) {
  if (!model_) return;
  gather(work);
  drafter_->follow(chunks_, *model_);
}

// Every row that ran tells what follows its token, whether the token was kept or not.
void DraftDriver::learn(const Sequence& stream, int64_t count, int64_t committed, int64_t row, Executor& executor) {
  if (best_.empty() || stream.request.beams > 1) return;
  for (int64_t i = -1; i < count; ++i) {
    const int64_t last = stream.size() - committed - 1;  // the stream's last token when the step ran
    const TokenId token = stream.token_at(i < 0 ? last : stream.size() + i);
    executor.best_tokens(row + 1 + i, best_);
    drafter_->learn(stream, token, best_);
  }
}

// A stream that has ended has nothing to learn.
void DraftDriver::observe(const Sequence& stream, int64_t count, int64_t committed, int64_t row, Executor& executor) {
  if (!drafter_) return;
  learn(stream, count, committed, row, executor);
  if (!drafter_->trees()) return;
  probed_.clear();
  for (int64_t i = stream.draft.candidates(count); i < count; ++i) probed_.push_back(executor.best_token(row + 1 + i));
  drafter_->observe(stream, committed, probed_);
}

Result<void> DraftDriver::check_evictor() const {
  if (!drafter_ || !drafter_->trees()) return {};
  return Error::unsupported(
      "evictor: does not go with a drafter of trees; use one of chains, such as ngram without branches, or none");
}

}  // namespace millrace
