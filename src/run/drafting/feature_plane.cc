#include "run/drafting/feature_plane.h"

#include <algorithm>

namespace millrace {

void FeaturePlane::read(std::span<const BlockId> table, int64_t slot, float* row) const {
  if (slot < 0) {
    std::fill_n(row, width_, 0.0f);
    return;
  }
  const BlockId block = table[static_cast<size_t>(slot / pool_->layout().block_tokens)];
  codec_->decode(at(block, slot), row, width_);
}

void FeaturePlane::write(std::span<const BlockId> table, int64_t slot, const float* row) {
  const BlockId block = table[static_cast<size_t>(slot / pool_->layout().block_tokens)];
  codec_->encode(row, at(block, slot), width_);
}

void FeaturePlane::store(const Batch& batch, const float* rows, ThreadPool& threads) {
  threads.parallel_for(std::ssize(batch.spans), [&](int64_t i, int) {
    const BatchSpan& span = batch.spans[static_cast<size_t>(i)];
    const auto table =
        std::span(batch.block_tables).subspan(static_cast<size_t>(span.table), static_cast<size_t>(span.table_size));
    for (int64_t t = 0; t < span.count; ++t) write(table, span.first_slot + t, rows + (span.begin + t) * width_);
  });
}

}  // namespace millrace
