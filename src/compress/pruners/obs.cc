// Optimal brain surgeon (Hassibi and Stork, 1992, "Second Order Derivatives for Network Pruning: Optimal Brain
// Surgeon"), row by row: of the weights that are left, the one with the smallest w_q^2 / (2 [H^-1]_qq) is pruned, the
// others move by -w_q / [H^-1]_qq * H^-1 e_q, which is the best that they can do for the outputs on the calibration
// text, and H^-1 loses row and column q. H are the second moments of the inputs, since the loss of a row is the squared
// change of its output. Every row has its own H^-1: the time is rows * columns^3, so wide matrices are refused.
// SparseGPT approximates this.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "compress/factories.h"
#include "compress/pruners/column_pruner.h"

namespace millrace {
namespace {

constexpr int64_t kWorkers = 8;  // rows at a time at most, each with an inverse of its own

// One row's weights and their H^-1. Pruned columns leave: the last one takes their place.
class Surgeon {
 public:
  Surgeon(const PrunePattern& pattern, int64_t cols) : pattern_(pattern), cols_(cols) {}

  void run(const std::vector<double>& inverse, float* values, uint8_t* kept) {
    inverse_ = inverse;
    weights_.assign(values, values + cols_);
    columns_.resize(static_cast<size_t>(cols_));
    std::iota(columns_.begin(), columns_.end(), 0);
    const int64_t group = pattern_.group(cols_);
    left_.assign(static_cast<size_t>(cols_ / group), pattern_.pruned(group));
    for (int64_t c = 0; c < cols_; ++c)
      if (!kept[c]) remove(std::ranges::find(columns_, c) - columns_.begin(), group);
    for (int64_t at; (at = cheapest(group)) >= 0;) {
      kept[columns_[static_cast<size_t>(at)]] = 0;
      remove(at, group);
    }
    std::fill_n(values, cols_, 0.0f);
    for (size_t i = 0; i < columns_.size(); ++i) values[columns_[i]] = static_cast<float>(weights_[i]);
  }

 private:
  double* line(int64_t at) { return &inverse_[static_cast<size_t>(at * cols_)]; }

  // Of the columns whose groups still lose weights; of equal ones the first. -1: none.
  int64_t cheapest(int64_t group) {
    int64_t best = -1;
    double least = 0;
    for (int64_t i = 0; i < std::ssize(columns_); ++i) {
      const auto at = static_cast<size_t>(i);
      if (left_[static_cast<size_t>(columns_[at] / group)] <= 0) continue;
      const double cost = weights_[at] * weights_[at] / line(i)[i];
      if (best >= 0 && (cost > least || (cost == least && columns_[at] > columns_[static_cast<size_t>(best)])))
        continue;
      best = i;
      least = cost;
    }
    return best;
  }

  void remove(int64_t at, int64_t group) {
    --left_[static_cast<size_t>(columns_[static_cast<size_t>(at)] / group)];
    const int64_t n = std::ssize(columns_), last = n - 1;
    const std::vector<double> out(line(at), line(at) + n);
    const double pivot = out[static_cast<size_t>(at)];
    const double weight = weights_[static_cast<size_t>(at)];
    for (int64_t i = 0; i < n; ++i) {
      const double factor = out[static_cast<size_t>(i)] / pivot;
      weights_[static_cast<size_t>(i)] -= weight * factor;
      double* to = line(i);
      for (int64_t k = 0; k < n; ++k) to[k] -= factor * out[static_cast<size_t>(k)];
    }
    if (at != last) std::copy_n(line(last), n, line(at));
    for (int64_t i = 0; i < last; ++i) line(i)[at] = line(i)[last];
    weights_[static_cast<size_t>(at)] = weights_.back();
    columns_[static_cast<size_t>(at)] = columns_.back();
    weights_.pop_back();
    columns_.pop_back();
  }

  const PrunePattern& pattern_;
  int64_t cols_;
  std::vector<double> inverse_;   // [cols, cols], of which the first columns_.size() are used
  std::vector<double> weights_;   // of `columns_`
  std::vector<int64_t> columns_;  // that are left
  std::vector<int64_t> left_;     // to prune, of each group
};

class Obs final : public Pass {
 public:
  Obs(const PrunePattern& pattern, double damp, int64_t widest) : pattern_(pattern), damp_(damp), widest_(widest) {}

  uint32_t needs() const override { return kSecondMoments; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    if (cols > widest_) return 0;  // refused
    return rows * cols + TriangleFactor::bytes(cols) + (kWorkers + 1) * cols * cols * 8;
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    PassPreview out = preview_pruned(matrix, pattern_);
    if (out.action != "left" && matrix.cols > widest_) return too_wide(matrix);
    return out;
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (PassRow left = left_alone(matrix, pattern_); !left.action.empty()) return left;
    if (matrix.cols > widest_) return too_wide(matrix);
    if (!factor_.prepare(statistics, damp_, pool)) return PassRow{"left", "its inputs are all zero or not finite", {}};
    const std::vector<double> inverse = full_inverse(factor_.factor(), pool);
    matrix.kept.resize(matrix.values.size(), 1);
    pool.parallel_for(kWorkers, [&](int64_t worker, int) {
      Surgeon surgeon(pattern_, matrix.cols);
      for (int64_t r = worker; r < matrix.rows; r += kWorkers)
        surgeon.run(inverse, matrix.values.data() + r * matrix.cols, matrix.kept.data() + r * matrix.cols);
    });
    return PassRow{"pruned", "", {{"damping", factor_.damping()}}};
  }

 private:
  Error too_wide(const PassMatrix& matrix) const {
    return Error::user(
        fmt::format("{}: --pass obs would take very long for {} columns, more than {}; use sparsegpt, or raise widest",
                    matrix.name, matrix.cols, widest_));
  }

  PrunePattern pattern_;
  double damp_;
  int64_t widest_;  // columns
  DampedFactor factor_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_obs_pass(const OptionValues& options) {
  MILLRACE_TRY(const PrunePattern pattern, read_pattern(options));
  return std::unique_ptr<Pass>(std::make_unique<Obs>(pattern, options.number("damp"), options.integer("widest")));
}

}  // namespace millrace
