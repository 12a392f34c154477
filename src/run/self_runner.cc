#include "run/self_runner.h"

#include "run/draft_draw.h"
#include "run/executor_stream.h"

namespace millrace {

int64_t drawn_rows_bytes(const LoadedDraftModel::Sizes& sizes, int threads) {
  return 32 * sizes.vocab * (sizes.streams > 1 ? threads : 1);
}

int64_t SelfRunner::memory(const Sizes& sizes, int threads, const KvLayout&) const {
  return drawn_rows_bytes(sizes, threads);
}

Result<void> SelfRunner::start(ModelRunner& target, int64_t /*first_layer*/, const Sizes& sizes) {
  runner_ = &target;
  scratch_.resize(static_cast<size_t>(sizes.streams > 1 ? target.threads().threads() : 1));
  for (SamplingRow& row : scratch_) row.reserve(target.model().spec().vocab);
  drawing_.reserve(static_cast<size_t>(sizes.streams));
  return {};
}

void add_draft_run(ModelRunner& runner, const DraftRun& run, bool outputs) {
  const Sequence& s = *run.stream;
  const LoraMix& mix = run.owner->adapters;
  runner.begin(s.kv.blocks, run.first - s.kv.left_out, mix.empty() ? nullptr : &mix, s.kv.state);
  if (run.first >= s.prompt_tokens) runner.answers();
  for (size_t g = 0; g < s.kv.windows.size(); ++g)
    runner.begin_group(static_cast<int64_t>(g) + 1, s.kv.windows[g].blocks,
                       run.first - s.kv.left_out_of(static_cast<int64_t>(g) + 1));
  const int64_t end = run.first + run.count;
  for (int64_t i = run.first; i < end; ++i) runner.add(s.token_at(i), i, outputs && i + 1 == end);
}

void SelfRunner::run(std::span<DraftRun> runs) {
  runner_->start();
  std::swap(runner_->hooks(), hooks_);
  runner_->context().skipped = &skipped_;
  drawing_.clear();
  for (DraftRun& run : runs) {
    add_draft_run(*runner_, run, run.draws);
    if (run.draws) drawing_.push_back(&run);
  }
  {
    const ThreadPool::Turn turn(runner_->threads());
    runner_->forward(turn);
    const auto vocab = static_cast<size_t>(runner_->model().spec().vocab);
    const auto draw = [&](int64_t row, int worker) {
      draw_next(*drawing_[static_cast<size_t>(row)], {runner_->logits(row), vocab},
                scratch_[static_cast<size_t>(worker)]);
    };
    if (drawing_.size() == 1)
      draw(0, 0);
    else if (!drawing_.empty())
      runner_->threads().parallel_for(std::ssize(drawing_), draw);
  }
  runner_->start();  // takes its adapters out of the hooks
  runner_->context().skipped = nullptr;
  std::swap(runner_->hooks(), hooks_);
}

}  // namespace millrace
