#include "run/lookahead_runner.h"

#include "run/draft_draw.h"
#include "run/self_runner.h"

namespace millrace {

int64_t LookaheadRunner::memory(const Sizes& sizes, int threads, const KvLayout&) const {
  return drawn_rows_bytes(sizes, threads);
}

Result<void> LookaheadRunner::start(ModelRunner& target, int64_t /*first_layer*/, const Sizes& sizes) {
  target_ = &target;
  vocab_ = target.model().spec().vocab;
  scratch_.resize(static_cast<size_t>(sizes.streams > 1 ? target.threads().threads() : 1));
  for (SamplingRow& row : scratch_) row.reserve(vocab_);
  drawing_.reserve(static_cast<size_t>(sizes.streams));
  return {};
}

void LookaheadRunner::run(std::span<DraftRun> runs) {
  target_->start();
  std::swap(target_->hooks(), hooks_);
  drawing_.clear();
  for (DraftRun& run : runs) {
    drawing_.push_back({&run, target_->outputs()});
    add_draft_run(*target_, run, true);
    for (int64_t i = 0; i + 1 < std::ssize(run.picks); ++i)
      target_->add_embedding(tokens_.row(i), run.first + run.count + i, true);
  }
  {
    const ThreadPool::Turn turn(target_->threads());
    target_->forward(turn);
    const auto draw = [&](int64_t at, int worker) {  // a stream's picks one after the other: they share its chain
      const Draw& one = drawing_[static_cast<size_t>(at)];
      for (int64_t i = 0; i < std::ssize(one.run->picks); ++i)
        draw_beside(*one.run, one.run->picks[static_cast<size_t>(i)], one.run->first + one.run->count + i, i == 0,
                    {target_->logits(one.row + i), static_cast<size_t>(vocab_)}, scratch_[static_cast<size_t>(worker)]);
    };
    if (drawing_.size() == 1)
      draw(0, 0);
    else if (!drawing_.empty())
      target_->threads().parallel_for(std::ssize(drawing_), draw);
  }
  target_->start();  // takes its adapters out of the hooks
  std::swap(target_->hooks(), hooks_);
}

}  // namespace millrace
