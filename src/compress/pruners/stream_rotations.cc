#include "compress/pruners/stream_rotations.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr int64_t kStreamColumns = 32;                 // of the second moments, that one thread sums
constexpr int64_t kMomentsBytes = int64_t{512} << 20;  // at a time, without a memory limit

// The second moments of the residual stream, rows scaled to length 1, before the blocks [first, first + sums.size());
// of all layers together if there is one sum for the model.
class StreamMoments final : public ForwardObserver {
 public:
  StreamMoments(int64_t first, bool each_block, std::vector<std::vector<double>>& sums, ThreadPool& pool)
      : first_(first), each_block_(each_block), sums_(sums), pool_(pool) {}

  void residual(int64_t layer, const float* rows, int64_t tokens, int64_t width) override {
    add(each_block_ ? 2 * layer - first_ : 0, rows, tokens, width);
  }
  void middle(int64_t layer, const float* rows, int64_t tokens, int64_t width) override {
    if (each_block_) add(2 * layer + 1 - first_, rows, tokens, width);
  }

 private:
  void add(int64_t sum, const float* rows, int64_t tokens, int64_t width) {
    if (sum < 0 || sum >= std::ssize(sums_)) return;
    std::vector<double>& to = sums_[static_cast<size_t>(sum)];
    std::vector<double> unit(static_cast<size_t>(tokens * width));
    pool_.parallel_for(tokens, [&](int64_t t, int) {
      double square = 0;
      for (int64_t i = 0; i < width; ++i) square += static_cast<double>(rows[t * width + i]) * rows[t * width + i];
      const double scale = square > 0 ? 1 / std::sqrt(square) : 0;
      for (int64_t i = 0; i < width; ++i) unit[static_cast<size_t>(t * width + i)] = scale * rows[t * width + i];
    });
    pool_.parallel_for((width + kStreamColumns - 1) / kStreamColumns, [&](int64_t part, int) {
      const int64_t begin = part * kStreamColumns, end = std::min(width, begin + kStreamColumns);
      for (int64_t t = 0; t < tokens; ++t) {
        const double* row = &unit[static_cast<size_t>(t * width)];
        for (int64_t i = begin; i < end; ++i)
          for (int64_t j = 0; j < width; ++j) to[static_cast<size_t>(i * width + j)] += row[i] * row[j];
      }
    });
  }

  int64_t first_;
  bool each_block_;
  std::vector<std::vector<double>>& sums_;
  ThreadPool& pool_;
};

}  // namespace

Result<void> StreamRotations::measure() {
  const int64_t width = work_.spec.width, layers = work_.spec.layer_count(), left = blocks() - block_;
  const int64_t each = width * width * 8;
  // Of one block at a time: its rows, its decomposition, and the components of two blocks.
  const int64_t fixed = work_.calibration->context() * width * 8 + symmetric_eigen_bytes(width) + 2 * kept_ * width * 8;
  memory_ = {};
  const int64_t room = work_.accounts->budget() > 0 ? work_.accounts->left() - fixed : kMomentsBytes;
  const int64_t count = std::clamp<int64_t>(room / each, 1, left);
  MILLRACE_TRY(memory_,
               MemoryHold::take(work_.accounts, "principal components", fixed + count * each, "raise --memory"));
  moments_.assign(static_cast<size_t>(count), std::vector<double>(static_cast<size_t>(width * width)));
  StreamMoments observer(block_, each_block_, moments_, work_.pool);
  const int64_t last = each_block_ ? (block_ + count - 1) / 2 : layers;  // the layer before which the last one is
  const InputCalibration::Layers range{.from = each_block_ ? block_ / 2 : 0,
                                       .to = std::min(last + 1, layers),
                                       .next = count < left ? (block_ + count) / 2 : -1};
  return work_.calibration->run(observer, range, last == layers, [] { return Result<void>(); });
}

Result<std::shared_ptr<const EigenPairs>> StreamRotations::rotation(std::vector<double> moments) const {
  auto eigen = std::make_shared<EigenPairs>(symmetric_eigen(std::move(moments), work_.spec.width, kept_, work_.pool));
  if (!eigen->converged)
    return Error::unsupported("--pass slicegpt: the residual stream is not finite on the calibration text");
  return std::shared_ptr<const EigenPairs>(std::move(eigen));
}

Result<std::shared_ptr<const EigenPairs>> StreamRotations::next() {
  if (only_) return only_;
  if (moments_.empty()) MILLRACE_TRY_VOID(measure());
  std::vector<double> moments = std::move(moments_.front());
  moments_.erase(moments_.begin());
  ++block_;
  MILLRACE_TRY(auto found, rotation(std::move(moments)));
  if (!each_block_) only_ = found;
  return found;
}

}  // namespace millrace
