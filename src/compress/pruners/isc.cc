// ISC (Shao et al., 2023, "One-Shot Sensitivity-Aware Mixed Sparsity Pruning for Large Language Models"): SparseGPT
// with two changes. A weight's saliency is the sum of what optimal brain surgeon and optimal brain damage say, the loss
// with and without the other weights making up for it:
//
//   w^2 / [H^-1]_qq + w^2 H_qq
//
// since the columns before it can no longer move. And matrices of little sensitivity lose more weights: the sensitivity
// is the mean of the Hessian's diagonal. The paper leaves open how far fractions of zeros go apart; here they fall
// linearly with the rank of a matrix among all, within `spread` of the model's.
#include <algorithm>
#include <map>

#include "compress/factories.h"
#include "compress/pruners/column_pruner.h"
#include "compress/pruners/layer_ratios.h"

namespace millrace {
namespace {

class Isc final : public Pass {
 public:
  explicit Isc(const OptionValues& options)
      : sparsity_(options.number("sparsity")),
        spread_(options.number("spread")),
        damp_(options.number("damp")),
        block_(options.integer("block")) {}

  uint32_t needs() const override { return kSecondMoments; }
  int surveys() const override { return 1; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    return ColumnPruner::working_bytes(rows, cols, block_);
  }

  void survey(int, const PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool&) override {
    if (matrix.id.layer < 0) return;
    const double mean = statistics.moments.diagonal_mean() / static_cast<double>(statistics.rows);
    matrices_.push_back({matrix.name, mean, matrix.rows * matrix.cols});
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    return preview_pruned(matrix, {.sparsity = sparsity_});
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    const auto ratio = ratios().find(matrix.name);
    const PrunePattern pattern{.sparsity = ratio == ratios().end() ? 0 : ratio->second};
    if (PassRow left = left_alone(matrix, pattern); !left.action.empty()) return left;
    if (!factor_.prepare(statistics, damp_, pool)) return PassRow{"left", "its inputs are all zero or not finite", {}};
    std::vector<double> diagonal(static_cast<size_t>(matrix.cols));  // of H, with the damping
    const double damping = factor_.damping() * statistics.moments.diagonal_mean();
    for (int64_t c = 0; c < matrix.cols; ++c) diagonal[static_cast<size_t>(c)] = statistics.moments.at(c, c) + damping;
    ColumnPruner(matrix, factor_.factor(), pattern, block_, std::move(diagonal)).run(pool);
    return PassRow{"pruned", "", {{"sparsity", pattern.sparsity}, {"damping", factor_.damping()}}};
  }

 private:
  struct Sensitivity {
    std::string name;
    double value = 0;
    int64_t weights = 0;
  };

  const std::map<std::string, double>& ratios() {
    if (!ratios_.empty()) return ratios_;
    std::ranges::stable_sort(matrices_, {}, &Sensitivity::value);
    std::vector<LayerShare> shares;
    double rank = -1, value = 0;
    for (const Sensitivity& one : matrices_) {
      if (rank < 0 || one.value != value) ++rank;  // Q, K and V share their inputs, so their rank too
      value = one.value;
      shares.push_back({rank, one.weights});
    }
    const std::vector<double> fractions = layer_ratios(shares, sparsity_, spread_);
    for (size_t i = 0; i < fractions.size(); ++i) ratios_[matrices_[i].name] = fractions[i];
    return ratios_;
  }

  double sparsity_, spread_, damp_;
  int64_t block_;
  std::vector<Sensitivity> matrices_;
  std::map<std::string, double> ratios_;
  DampedFactor factor_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_isc_pass(const OptionValues& options) {
  return std::unique_ptr<Pass>(std::make_unique<Isc>(options));
}

}  // namespace millrace
