#include "run/drafting/exit_runner.h"

#include "models/mixers/mixer.h"
#include "run/drafting/draft_draw.h"
#include "run/drafting/self_runner.h"

namespace millrace {

ExitRunner::~ExitRunner() {
  if (target_) target_->hooks().remove(stores_);
}

std::vector<KvLayer> ExitRunner::layers() const { return layer_states(adapter_->spec()); }

ForwardLimits ExitRunner::limits(const Sizes& sizes) {
  return {.tokens = sizes.tokens, .outputs = sizes.streams, .context = sizes.context};
}

int64_t ExitRunner::memory(const Sizes& sizes, int threads, const KvLayout& layout) const {
  const ForwardBytes bytes = ForwardContext::plan(adapter_->spec(), limits(sizes), threads, layout);
  return bytes.activations + bytes.logits + 32 * adapter_->spec().vocab * threads;
}

Result<void> ExitRunner::start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) {
  MILLRACE_TRY(ForwardContext context, ForwardContext::create(adapter_->spec(), target.context().kernels(),
                                                              target.threads(), target.kv(), limits(sizes)));
  context_.emplace(std::move(context));
  context_->first_kv_layer = first_layer;
  scratch_.resize(static_cast<size_t>(target.threads().threads()));
  for (SamplingRow& row : scratch_) row.reserve(adapter_->spec().vocab);
  drawing_.reserve(static_cast<size_t>(sizes.streams));
  rows_.reserve(static_cast<size_t>(sizes.streams));
  target_ = &target;
  target.hooks().add(stores_);
  return {};
}

void ExitRunner::Stores::residual(int64_t layer, const float* rows, int64_t /*tokens*/, int64_t /*width*/) {
  if (layer == runner.adapter_->exit()) runner.adapter_->store(runner.target_->batch(), rows, *runner.context_);
}

void ExitRunner::run(std::span<DraftRun> runs) {
  target_->start();
  std::swap(target_->hooks(), hooks_);
  drawing_.clear();
  rows_.clear();
  for (DraftRun& run : runs) {
    add_draft_run(*target_, run, false);
    if (!run.draws) continue;
    drawing_.push_back(&run);
    rows_.push_back(static_cast<int32_t>(target_->tokens() - 1));
  }
  {
    const ThreadPool::Turn turn(target_->threads());
    target_->forward_first(adapter_->exit(), turn);
    adapter_->forward(target_->batch(), target_->context().residual.as<float>(), *context_);
    adapter_->head(rows_, *context_);
    const auto vocab = static_cast<size_t>(adapter_->spec().vocab);
    const auto draw = [&](int64_t row, int worker) {
      float* logits = context_->logits.as<float>() + static_cast<size_t>(row) * vocab;
      draw_next(*drawing_[static_cast<size_t>(row)], {logits, vocab}, scratch_[static_cast<size_t>(worker)]);
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
