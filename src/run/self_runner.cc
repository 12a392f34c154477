#include "run/self_runner.h"

#include "run/draft_draw.h"
#include "run/executor_stream.h"

namespace millrace {

SelfRunner::SelfRunner(ModelRunner& runner, SkippedBlocks skipped, int64_t streams, int64_t first)
    : runner_(runner), skipped_(std::move(skipped)) {
  if (first > 0) {
    first_.emplace(first, runner.model().spec().width, runner.limits().tokens);
    running_.reserve(static_cast<size_t>(runner.limits().tokens));
  }
  scratch_.resize(static_cast<size_t>(streams > 1 ? runner.threads().threads() : 1));
  for (SamplingRow& row : scratch_) row.reserve(runner.model().spec().vocab);
  drawing_.reserve(static_cast<size_t>(streams));
}

int64_t SelfRunner::memory(int64_t vocab, int64_t streams, int threads) {
  return 32 * vocab * (streams > 1 ? threads : 1);
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

// The head moves rows, so they are kept before.
void SelfRunner::run_first(const ThreadPool::Turn& turn) {
  runner_.forward_first(first_->layers(), turn);
  const auto width = static_cast<size_t>(runner_.model().spec().width);
  for (size_t t = 0; t < running_.size(); ++t)
    first_->add(running_[t].first, running_[t].second, runner_.residual().subspan(t * width, width));
  runner_.model().head(runner_.batch(), runner_.context());
}

void SelfRunner::run(std::span<DraftRun> runs) {
  runner_.start();
  std::swap(runner_.hooks(), hooks_);
  runner_.context().skipped = &skipped_;
  drawing_.clear();
  running_.clear();
  for (DraftRun& run : runs) {
    add_draft_run(runner_, run, run.draws);
    for (int64_t i = 0; first_ && i < run.count; ++i) running_.emplace_back(run.stream->id, run.first + i);
    if (run.draws) drawing_.push_back(&run);
  }
  {
    const ThreadPool::Turn turn(runner_.threads());
    first_ ? run_first(turn) : runner_.forward(turn);
    const auto vocab = static_cast<size_t>(runner_.model().spec().vocab);
    const auto draw = [&](int64_t row, int worker) {
      draw_next(*drawing_[static_cast<size_t>(row)], {runner_.logits(row), vocab},
                scratch_[static_cast<size_t>(worker)]);
    };
    if (drawing_.size() == 1)
      draw(0, 0);
    else if (!drawing_.empty())
      runner_.threads().parallel_for(std::ssize(drawing_), draw);
  }
  runner_.start();  // takes its adapters out of the hooks
  runner_.context().skipped = nullptr;
  std::swap(runner_.hooks(), hooks_);
}

}  // namespace millrace
