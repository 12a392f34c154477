// OWL (Yin et al., 2023, "Outlier Weighed Layerwise Sparsity (OWL): A Missing Secret Sauce for Pruning LLMs to High
// Sparsity"): layers with more outliers lose fewer weights. A weight's score is A = |w| * |x|, with the norm |x| of its
// input over the calibration text; a layer's outliers are the scores above M times the layer's mean, and their part D_l
// of all scores decides its fraction of zeros, which lies within lambda of the fraction of the whole model. The weights
// themselves are chosen by another pruner, wanda or magnitude.
//
// Two surveys of all layers come first: one sums the scores, one counts the outliers.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "compress/factories.h"
#include "compress/pruners/layer_ratios.h"
#include "compress/pruners/prune_pattern.h"

namespace millrace {
namespace {

struct LayerOutliers {
  double sum = 0;  // of the scores
  int64_t weights = 0;
  int64_t outliers = 0;
};

class Owl final : public Pass {
 public:
  Owl(const OptionValues& options, bool by_inputs)
      : by_inputs_(by_inputs),
        sparsity_(options.number("sparsity")),
        threshold_(options.number("m")),
        spread_(options.number("lambda")) {}

  uint32_t needs() const override { return kInputNorms; }
  int surveys() const override { return 2; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override { return prune_working_bytes(rows, cols, false); }

  void survey(int time, const PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (matrix.id.layer < 0) return;
    LayerOutliers& layer = layers_[matrix.id.layer];
    const double limit = time == 0 ? 0 : threshold_ * layer.sum / static_cast<double>(layer.weights);
    std::vector<double> sums(static_cast<size_t>(matrix.rows));
    std::vector<int64_t> outliers(sums.size());
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      double sum = 0;
      int64_t count = 0;
      for (int64_t c = 0; c < matrix.cols; ++c) {
        const double score = score_of(matrix, statistics, r, c, true);
        sum += score;
        count += score > limit;
      }
      sums[static_cast<size_t>(r)] = sum;
      outliers[static_cast<size_t>(r)] = count;
    });
    for (size_t r = 0; r < sums.size(); ++r) {
      if (time == 0)
        layer.sum += sums[r];
      else
        layer.outliers += outliers[r];
    }
    if (time == 0) layer.weights += matrix.rows * matrix.cols;
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    return preview_pruned(matrix, {.sparsity = sparsity_});
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    const auto ratio = ratios().find(matrix.id.layer);
    const PrunePattern pattern{.sparsity = ratio == ratios().end() ? 0 : ratio->second};
    if (PassRow left = left_alone(matrix, pattern); !left.action.empty()) return left;
    const auto score = [&](int64_t row, double* scores) {
      for (int64_t c = 0; c < matrix.cols; ++c) scores[c] = score_of(matrix, statistics, row, c, by_inputs_);
    };
    prune_by_scores(matrix, pattern, false, score, pool);
    return PassRow{"pruned", "", {{"sparsity", pattern.sparsity}}};
  }

 private:
  static double score_of(const PassMatrix& matrix, const LinearStatistics& statistics, int64_t row, int64_t col,
                         bool by_inputs) {
    const double size = std::fabs(static_cast<double>(matrix.values[static_cast<size_t>(row * matrix.cols + col)]));
    return by_inputs ? size * std::sqrt(statistics.squares[static_cast<size_t>(col)]) : size;
  }

  const std::map<int32_t, double>& ratios() {
    if (!ratios_.empty()) return ratios_;
    std::vector<LayerShare> shares;
    for (const auto& [layer, found] : layers_)
      shares.push_back({static_cast<double>(found.outliers) / static_cast<double>(found.weights), found.weights});
    const std::vector<double> fractions = layer_ratios(shares, sparsity_, spread_);
    size_t next = 0;
    for (const auto& [layer, found] : layers_) ratios_[layer] = fractions[next++];
    return ratios_;
  }

  bool by_inputs_;
  double sparsity_, threshold_, spread_;  // of the paper: S, M, lambda
  std::map<int32_t, LayerOutliers> layers_;
  std::map<int32_t, double> ratios_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_owl_pass(const OptionValues& options) {
  const std::string& prune = options.text("prune");
  if (prune != "wanda" && prune != "magnitude")
    return Error::user(fmt::format("prune '{}': must be wanda or magnitude", prune));
  return std::unique_ptr<Pass>(std::make_unique<Owl>(options, prune == "wanda"));
}

}  // namespace millrace
