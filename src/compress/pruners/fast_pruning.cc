// Fast pruning (Boža, 2024, "Fast and Effective Weight Update for Pruned Large Language Models"): prunes a matrix in
// steps, and moves the weights that are left towards those whose outputs on the calibration text are nearest to the
// unpruned ones, by the alternating direction method of multipliers (ADMM). Columns are first multiplied by the norms
// of their inputs, so that the second moments H have ones on their diagonal and magnitudes are Wanda's scores. Then, of
// a row w, with lambda added to the diagonal of H, rho = 1, u = 0, and v = w at first:
//
//   mask: the smallest |v + u| are pruned; their part grows as 1 - (1 - t / steps)^3
//   z = mask (v + u)      u = u + v - z      v = (H + rho I)^-1 (H w + rho (z - u))
//
// and the row becomes mask (v + u) after the last iteration. All rows share one inverse, where the exact answer for a
// mask takes one for every row. Weights that an earlier pass pruned are never in a mask.
#include <algorithm>
#include <cmath>

#include "compress/calibration/dense_sums.h"
#include "compress/factories.h"
#include "compress/pruners/prune_pattern.h"
#include "compress/rounding/symmetric_inverse.h"

namespace millrace {
namespace {

constexpr int64_t kUpdatedRows = 8;  // that one thread updates together, so that they share the inverse's rows
constexpr double kRho = 1;

struct FastPruningOptions {
  PrunePattern pattern;
  bool whole_matrix = true;
  int64_t steps = 15;
  int64_t iterations = 20;
  double damp = 0.1;  // lambda
};

// What the matrices that read the same rows share.
class ScaledMoments {
 public:
  // False: the inputs are zero or not finite.
  bool prepare(const LinearStatistics& statistics, double damp, ThreadPool& pool) {
    if (ready_ && id_ == statistics.id) return true;
    ready_ = false;
    id_ = statistics.id;
    const SecondMoments& moments = statistics.moments;
    const double mean = moments.diagonal_mean();
    if (!(mean > 0) || !(mean < 1e300)) return false;
    const int64_t n = moments.columns();
    norms_.resize(static_cast<size_t>(n));
    // A column whose inputs are all zero is pruned first, and nothing divides by zero.
    for (int64_t i = 0; i < n; ++i) norms_[static_cast<size_t>(i)] = std::sqrt(moments.at(i, i) + 1e-12 * mean);
    moments_ = moments.dense();
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j)
        moments_[static_cast<size_t>(i * n + j)] /= norms_[static_cast<size_t>(i)] * norms_[static_cast<size_t>(j)];
      moments_[static_cast<size_t>(i * n + i)] += damp;
    }
    inverse_ = moments_;
    for (int64_t i = 0; i < n; ++i) inverse_[static_cast<size_t>(i * n + i)] += kRho;
    ready_ = invert_symmetric(inverse_, n, pool);
    return ready_;
  }

  double norm(int64_t col) const { return norms_[static_cast<size_t>(col)]; }
  const std::vector<double>& moments() const { return moments_; }  // H + lambda I
  const std::vector<double>& inverse() const { return inverse_; }  // (H + (lambda + rho) I)^-1

 private:
  bool ready_ = false;
  LinearId id_;
  std::vector<double> norms_, moments_, inverse_;
};

class AdmmUpdate {
 public:
  AdmmUpdate(const FastPruningOptions& options, const ScaledMoments& inputs, PassMatrix& matrix, ThreadPool& pool)
      : options_(options), inputs_(inputs), matrix_(matrix), pool_(pool), sum_(matrix.values.size()), dual_(sum_) {
    matrix_.kept.resize(sum_.size(), 1);
    for (size_t i = 0; i < sum_.size(); ++i)
      sum_[i] = matrix_.kept[i]
                    ? static_cast<double>(matrix_.values[i]) * inputs_.norm(static_cast<int64_t>(i) % matrix_.cols)
                    : 0;
    allowed_ = matrix_.kept;
    // An earlier pass may have pruned weights and left their values, for others to make up for.
    right_.assign(matrix_.values.begin(), matrix_.values.end());
    for (size_t i = 0; i < right_.size(); ++i) right_[i] *= inputs_.norm(static_cast<int64_t>(i) % matrix_.cols);
    right_ = product(inputs_.moments(), right_);
  }

  void run() {
    const int64_t steps = std::min(options_.steps, options_.iterations);
    for (int64_t t = 1; t <= options_.iterations; ++t) {
      if (t <= steps) {
        const double left = 1 - static_cast<double>(t) / static_cast<double>(steps);
        choose(1 - left * left * left);
      }
      std::vector<double> target(sum_.size());  // H w + rho (z - u)
      for (size_t i = 0; i < sum_.size(); ++i) {
        const double z = matrix_.kept[i] ? sum_[i] : 0;
        dual_[i] = sum_[i] - z;  // u + v - z
        target[i] = right_[i] + kRho * (z - dual_[i]);
      }
      sum_ = product(inputs_.inverse(), target);
      for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += dual_[i];
    }
    for (size_t i = 0; i < sum_.size(); ++i)
      matrix_.values[i] =
          matrix_.kept[i] ? static_cast<float>(sum_[i] / inputs_.norm(static_cast<int64_t>(i) % matrix_.cols)) : 0;
  }

 private:
  // The smallest sums, of those that an earlier pass has left: `part` of what is pruned in the end.
  void choose(double part) {
    const auto count = [&](int64_t weights) {
      return std::min(options_.pattern.pruned(weights),
                      static_cast<int64_t>(std::round(part * static_cast<double>(options_.pattern.pruned(weights)))));
    };
    matrix_.kept = allowed_;
    const int64_t all = std::ssize(sum_);
    const int64_t group = options_.whole_matrix ? all : options_.pattern.group(matrix_.cols);
    const int64_t tile = options_.whole_matrix ? all : matrix_.cols;
    pool_.parallel_for(all / tile, [&](int64_t r, int) {
      std::vector<double> scores(static_cast<size_t>(tile)), sorted;
      for (int64_t i = 0; i < tile; ++i)
        scores[static_cast<size_t>(i)] =
            allowed_[static_cast<size_t>(r * tile + i)] ? std::fabs(sum_[static_cast<size_t>(r * tile + i)]) : -1;
      for (int64_t begin = 0; begin < tile; begin += group)
        prune_lowest(scores.data() + begin, group, count(group), sorted, matrix_.kept.data() + r * tile + begin);
    });
  }

  // X M of all rows, of a symmetric M.
  std::vector<double> product(const std::vector<double>& m, const std::vector<double>& x) const {
    const int64_t n = matrix_.cols;
    std::vector<double> out(x.size());
    pool_.parallel_for((matrix_.rows + kUpdatedRows - 1) / kUpdatedRows, [&](int64_t tile, int) {
      const int64_t end = std::min(matrix_.rows, (tile + 1) * kUpdatedRows);
      for (int64_t c = 0; c < n; ++c)
        for (int64_t r = tile * kUpdatedRows; r < end; ++r)
          out[static_cast<size_t>(r * n + c)] = dot_product(m.data() + c * n, x.data() + r * n, n);
    });
    return out;
  }

  const FastPruningOptions& options_;
  const ScaledMoments& inputs_;
  PassMatrix& matrix_;
  ThreadPool& pool_;
  std::vector<double> sum_;       // v + u
  std::vector<double> dual_;      // u
  std::vector<double> right_;     // H w
  std::vector<uint8_t> allowed_;  // not pruned by an earlier pass
};

class FastPruning final : public Pass {
 public:
  explicit FastPruning(const FastPruningOptions& options) : options_(options) {}

  uint32_t needs() const override { return kSecondMoments; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    return 2 * cols * cols * 8 + rows * cols * (6 * 8 + 2);
  }

  Result<PassPreview> preview(PassMatrix& matrix) const override { return preview_pruned(matrix, options_.pattern); }
  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (PassRow left = left_alone(matrix, options_.pattern); !left.action.empty()) return left;
    if (!inputs_.prepare(statistics, options_.damp, pool))
      return PassRow{"left", "its inputs are all zero or not finite", {}};
    AdmmUpdate(options_, inputs_, matrix, pool).run();
    return PassRow{"pruned", "", {}};
  }

 private:
  FastPruningOptions options_;
  ScaledMoments inputs_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_fast_pruning_pass(const OptionValues& values) {
  FastPruningOptions options;
  MILLRACE_TRY(options.pattern, read_pattern(values));
  MILLRACE_TRY(options.whole_matrix, read_matrix_scope(values));
  options.whole_matrix = options.whole_matrix && !options.pattern.grouped();
  options.steps = values.integer("steps");
  options.iterations = values.integer("iterations");
  options.damp = values.number("damp");
  return std::unique_ptr<Pass>(std::make_unique<FastPruning>(options));
}

}  // namespace millrace
