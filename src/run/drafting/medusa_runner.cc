#include "run/drafting/medusa_runner.h"

#include <algorithm>

#include "run/drafting/draft_draw.h"

namespace millrace {
namespace {

constexpr const char* kMedusaMemory = "heads of drafts";

}  // namespace

int64_t MedusaRunner::memory(const Sizes& sizes, int threads, const KvLayout&) const {
  const int64_t workers = sizes.streams > 1 ? threads : 1;
  return 4 * sizes.streams * (heads_->width() + heads_->vocab()) + heads_->scratch_bytes(sizes.streams) +
         32 * heads_->vocab() * workers;
}

Result<void> MedusaRunner::start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) {
  target_ = &target;
  plane_ = FeaturePlane(target.kv(), target.context().kernels(), first_layer);
  MILLRACE_TRY(hidden_, AlignedBuffer::allocate(4 * sizes.streams * heads_->width(), kMedusaMemory));
  MILLRACE_TRY(logits_, AlignedBuffer::allocate(4 * sizes.streams * heads_->vocab(), kMedusaMemory));
  MILLRACE_TRY(scratch_, AlignedBuffer::allocate(heads_->scratch_bytes(sizes.streams), kMedusaMemory));
  rows_.resize(static_cast<size_t>(sizes.streams > 1 ? target.threads().threads() : 1));
  for (SamplingRow& row : rows_) row.reserve(heads_->vocab());
  return {};
}

void MedusaRunner::keep() {
  const ThreadPool::Turn turn(target_->threads());
  plane_.store(target_->batch(), target_->hidden(), target_->threads());
}

void MedusaRunner::run(std::span<DraftRun> runs) {
  const int64_t count = std::ssize(runs), width = heads_->width(), vocab = heads_->vocab();
  const ThreadPool::Turn turn(target_->threads());
  size_t heads = 0;
  for (int64_t i = 0; i < count; ++i) {
    const DraftRun& run = runs[static_cast<size_t>(i)];
    const Sequence& s = *run.stream;
    plane_.read(s.kv.blocks, s.size() - 2 - s.kv.left_out, hidden_.as<float>() + i * width);
    heads = std::max(heads, run.picks.size());
  }
  for (size_t head = 0; head < heads; ++head) {
    heads_->logits(static_cast<int64_t>(head), hidden_.as<float>(), count, scratch_.data(), target_->threads(),
                   logits_.as<float>());
    const auto draw = [&](int64_t i, int worker) {
      DraftRun& run = runs[static_cast<size_t>(i)];
      if (head >= run.picks.size()) return;
      draw_beside(run, run.picks[head], run.stream->size() + static_cast<int64_t>(head), head == 0,
                  {logits_.as<float>() + i * vocab, static_cast<size_t>(vocab)}, rows_[static_cast<size_t>(worker)]);
    };
    if (count == 1)
      draw(0, 0);
    else
      target_->threads().parallel_for(count, draw);
  }
}

}  // namespace millrace
