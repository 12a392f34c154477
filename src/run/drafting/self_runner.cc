#include "run/drafting/self_runner.h"

#include "run/drafting/draft_draw.h"
#include "run/executors/executor_stream.h"

namespace millrace {

int64_t drawn_rows_bytes(const LoadedDraftModel::Sizes& sizes, int threads) {
  return 32 * sizes.vocab * (sizes.streams > 1 ? threads : 1);
}

int64_t SelfRunner::memory(const Sizes& sizes, int threads, const KvLayout&) const {
  const int64_t rows = layers_ > 0 ? FirstRows::memory(width_, sizes.tokens) : 0;
  return drawn_rows_bytes(sizes, threads) + rows;
}

Result<void> SelfRunner::start(ModelRunner& target, int64_t /*first_layer*/, const Sizes& sizes) {
  runner_ = &target;
  if (layers_ > 0 && !target.kv().layout().recurrent()) {
    first_.emplace(layers_, width_, sizes.tokens);
    running_.reserve(static_cast<size_t>(sizes.tokens));
  }
  scratch_.resize(static_cast<size_t>(sizes.streams > 1 ? target.threads().threads() : 1));
  for (SamplingRow& row : scratch_) row.reserve(target.model().spec().vocab);
  drawing_.reserve(static_cast<size_t>(sizes.streams));
  return {};
}

namespace {

// The slot of the state on which the run's tokens are computed.
StateId drafting_state(ModelRunner& runner, const DraftRun& run) {
  const Sequence& s = *run.stream;
  if (s.kv.marks.empty()) return s.kv.state;
  const StateId slot = s.kv.marks.back().slot;
  if (run.first == s.computed) runner.kv().states().copy(s.kv.state, slot);
  return slot;
}

}  // namespace

void add_draft_run(ModelRunner& runner, const DraftRun& run, bool outputs) {
  const Sequence& s = *run.stream;
  const LoraMix& mix = run.owner->adapters;
  runner.begin(s.kv.blocks, run.first - s.kv.left_out, mix.empty() ? nullptr : &mix, drafting_state(runner, run));
  if (run.first >= s.prompt_tokens) runner.answers();
  for (size_t g = 0; g < s.kv.windows.size(); ++g)
    runner.begin_group(static_cast<int64_t>(g) + 1, s.kv.windows[g].blocks,
                       run.first - s.kv.left_out_of(static_cast<int64_t>(g) + 1));
  const int64_t end = run.first + run.count;
  for (int64_t i = run.first; i < end; ++i) runner.add(s.token_at(i), i, outputs && i + 1 == end);
}

// The head moves rows, so they are kept before.
void SelfRunner::run_first(const ThreadPool::Turn& turn) {
  runner_->forward_first(first_->layers(), turn);
  const auto width = static_cast<size_t>(width_);
  for (size_t t = 0; t < running_.size(); ++t)
    first_->add(running_[t].first, running_[t].second, runner_->residual().subspan(t * width, width));
  runner_->model().head(runner_->batch(), runner_->context());
}

void SelfRunner::run(std::span<DraftRun> runs) {
  runner_->start();
  std::swap(runner_->hooks(), hooks_);
  runner_->context().skipped = &skipped_;
  drawing_.clear();
  running_.clear();
  for (DraftRun& run : runs) {
    add_draft_run(*runner_, run, run.draws);
    for (int64_t i = 0; first_ && i < run.count; ++i) running_.emplace_back(run.stream->id, run.first + i);
    if (run.draws) drawing_.push_back(&run);
  }
  {
    const ThreadPool::Turn turn(runner_->threads());
    first_ ? run_first(turn) : runner_->forward(turn);
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
