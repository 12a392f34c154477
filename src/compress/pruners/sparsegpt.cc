// SparseGPT (Frantar and Alistarh, 2023, "SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot"):
// columns are pruned from the first to the last, and the weights of later columns make up for the loss, as the outputs
// on the calibration text see it (optimal brain surgeon with the second moments of the inputs as Hessian). Which
// weights go is decided for a block of Bs columns at a time, in all rows together, or for M columns of a row with an
// N:M pattern: those with the smallest w^2 / [H^-1]_cc of the columns that are left. The paper's joint quantization is
// another pass after this one.
#include "compress/factories.h"
#include "compress/pruners/column_pruner.h"

namespace millrace {
namespace {

class SparseGpt final : public Pass {
 public:
  SparseGpt(const PrunePattern& pattern, double damp, int64_t block) : pattern_(pattern), damp_(damp), block_(block) {}

  uint32_t needs() const override { return kSecondMoments; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    return ColumnPruner::working_bytes(rows, cols, block_);
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override { return preview_pruned(matrix, pattern_); }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (PassRow left = left_alone(matrix, pattern_); !left.action.empty()) return left;
    if (!factor_.prepare(statistics, damp_, pool)) return PassRow{"left", "its inputs are all zero or not finite", {}};
    ColumnPruner(matrix, factor_.factor(), pattern_, block_, {}).run(pool);
    return PassRow{"pruned", "", {{"damping", factor_.damping()}}};
  }

 private:
  PrunePattern pattern_;
  double damp_;
  int64_t block_;  // Bs
  DampedFactor factor_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_sparsegpt_pass(const OptionValues& options) {
  MILLRACE_TRY(const PrunePattern pattern, read_pattern(options));
  return std::unique_ptr<Pass>(std::make_unique<SparseGpt>(pattern, options.number("damp"), options.integer("block")));
}

}  // namespace millrace
