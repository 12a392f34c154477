// Magnitude pruning (Han et al., 2015, "Learning both Weights and Connections for Efficient Neural Networks"): the
// weights of smallest magnitude in a matrix, in each row, or in every M weights of a row are pruned, of equal ones the
// first. No calibration, and none of the paper's retraining: the baseline of all other pruners.
#include <cmath>

#include "compress/factories.h"
#include "compress/pruners/prune_pattern.h"

namespace millrace {
namespace {

class Magnitude final : public Pass {
 public:
  Magnitude(const PrunePattern& pattern, bool whole_matrix)
      : pattern_(pattern), whole_matrix_(whole_matrix && !pattern.grouped()) {}

  uint32_t needs() const override { return kNoStatistics; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    return prune_working_bytes(rows, cols, whole_matrix_);
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override { return preview_pruned(matrix, pattern_); }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics&, ThreadPool& pool) override {
    if (PassRow left = left_alone(matrix, pattern_); !left.action.empty()) return left;
    const auto score = [&](int64_t row, double* scores) {
      const float* values = matrix.values.data() + row * matrix.cols;
      for (int64_t c = 0; c < matrix.cols; ++c) scores[c] = std::fabs(static_cast<double>(values[c]));
    };
    prune_by_scores(matrix, pattern_, whole_matrix_, score, pool);
    return PassRow{"pruned", "", {}};
  }

 private:
  PrunePattern pattern_;
  bool whole_matrix_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_magnitude_pass(const OptionValues& options) {
  MILLRACE_TRY(const PrunePattern pattern, read_pattern(options));
  MILLRACE_TRY(const bool whole_matrix, read_matrix_scope(options));
  return std::unique_ptr<Pass>(std::make_unique<Magnitude>(pattern, whole_matrix));
}

}  // namespace millrace
