// Wanda (Sun et al., 2023, "A Simple and Effective Pruning Approach for Large Language Models"): of each row, or of
// every M weights of a row, the weights with the smallest |w| * |x| are pruned, |x| being the norm of the weight's
// input over the calibration text. Of equal scores the first one is pruned. The other weights stay as they are.
#include <cmath>

#include "compress/factories.h"
#include "compress/pruners/prune_pattern.h"

namespace millrace {
namespace {

class Wanda final : public Pass {
 public:
  explicit Wanda(const PrunePattern& pattern) : pattern_(pattern) {}

  uint32_t needs() const override { return kInputNorms; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override { return prune_working_bytes(rows, cols, false); }
  Result<PassPreview> preview(PassMatrix& matrix) const override { return preview_pruned(matrix, pattern_); }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (PassRow left = left_alone(matrix, pattern_); !left.action.empty()) return left;
    const auto score = [&](int64_t row, double* scores) {
      const float* values = matrix.values.data() + row * matrix.cols;
      for (int64_t c = 0; c < matrix.cols; ++c)
        scores[c] = std::fabs(static_cast<double>(values[c])) * std::sqrt(statistics.squares[static_cast<size_t>(c)]);
    };
    prune_by_scores(matrix, pattern_, false, score, pool);
    return PassRow{"pruned", "", {}};
  }

 private:
  PrunePattern pattern_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_wanda_pass(const OptionValues& options) {
  MILLRACE_TRY(const PrunePattern pattern, read_pattern(options));
  return std::unique_ptr<Pass>(std::make_unique<Wanda>(pattern));
}

}  // namespace millrace
