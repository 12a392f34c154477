#include "run/lookahead_runner.h"

#include "run/draft_draw.h"
#include "run/self_runner.h"

namespace millrace {

int64_t LookaheadRunner::memory(const Sizes& sizes, int threads, const KvLayout&) const {
  return SelfRunner::memory(sizes.vocab, sizes.streams * sizes.longest, threads);
}

Result<void> LookaheadRunner::start(ModelRunner& target, int64_t /*first_layer*/, const Sizes& sizes) {
  target_ = &target;
  vocab_ = target.model().spec().vocab;
  scratch_.resize(static_cast<size_t>(target.threads().threads()));
  for (SamplingRow& row : scratch_) row.reserve(vocab_);
  drawing_.reserve(static_cast<size_t>(sizes.streams * sizes.longest));
  return {};
}

void LookaheadRunner::run(std::span<DraftRun> runs) {
  target_->start();
  std::swap(target_->hooks(), hooks_);
  drawing_.clear();
  for (DraftRun& run : runs) {
    add_draft_run(*target_, run, true);
    for (size_t i = 0; i < run.picks.size(); ++i) {
      const auto behind = static_cast<int64_t>(i);
      if (i > 0) target_->add_embedding(tokens_.row(behind - 1), run.first + run.count + behind - 1, true);
      drawing_.push_back({&run, i});
    }
  }
  {
    const ThreadPool::Turn turn(target_->threads());
    target_->forward(turn);
    target_->threads().parallel_for(std::ssize(drawing_), [&](int64_t row, int worker) {
      const Draw& draw = drawing_[static_cast<size_t>(row)];
      const int64_t end = draw.run->first + draw.run->count + static_cast<int64_t>(draw.pick);
      draw_beside(*draw.run, draw.run->picks[draw.pick], end, draw.pick == 0,
                  {target_->logits(row), static_cast<size_t>(vocab_)}, scratch_[static_cast<size_t>(worker)]);
    });
  }
  target_->start();  // takes its adapters out of the hooks
  std::swap(target_->hooks(), hooks_);
}

}  // namespace millrace
