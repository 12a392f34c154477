// OBQ (Frantar and Alistarh, 2022, "Optimal Brain Compression: A Framework for Accurate Post-Training Quantization and
// Pruning"): a row's weights are rounded one after the other, each time the one whose rounding adds least to the
// squared output error, and all weights that are left move to make up for it:
//
//   p = argmin (quant(w_p) - w_p)^2 / [H^-1]_pp       w -= (w_p - quant(w_p)) / [H^-1]_pp * [H^-1]_:,p
//
// where H^-1 is that of the weights that are left: row and column p are eliminated. Every row has an order of its own,
// and so an inverse of its own: a row of n columns takes n^3 / 6 multiplications, where GPTQ shares one inverse. A
// matrix of 4,096 x 4,096 would take hours, so wider matrices than `columns` are left to plain rounding. Of equal costs
// the first column is rounded. The paper's other rule, that a weight beyond the grid is rounded at once, is left out:
// blocks' scales cover their weights.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/cpu.h"
#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/rounding/block_rounding.h"
#include "compress/rounding/column_rounding.h"
#include "compress/rounding/level_grid.h"
#include "compress/rounding/symmetric_inverse.h"

namespace millrace {
namespace {

constexpr int kInverseTries = 8;  // with ten times the damping each
constexpr int64_t kGreedyRows = 4;

struct ObqOptions {
  const Format* format = nullptr;
  double damp = 0.01;
  int64_t columns = 0;
  bool search = false;
};

// Rounds the rows of one task; the scales of their blocks are chosen.
class GreedyRounder {
 public:
  GreedyRounder(PassMatrix& matrix, const std::vector<double>& inverse)
      : matrix_(matrix),
        inverse_(inverse),
        n_(matrix.cols),
        grids_(static_cast<size_t>(n_ / matrix.format->block_values), LevelGrid(*matrix.format)),
        left_(inverse.size()),
        weights_(static_cast<size_t>(n_)),
        columns_(weights_.size()) {}

  void run(int64_t r) {
    const Format& format = *matrix_.format;
    uint8_t* const row = matrix_.encoded.data() + r * format.row_bytes(n_);
    for (size_t b = 0; b < grids_.size(); ++b) grids_[b].read(row + static_cast<int64_t>(b) * format.block_bytes);
    std::copy_n(matrix_.values.begin() + r * n_, n_, weights_.begin());
    std::iota(columns_.begin(), columns_.end(), 0);
    for (int64_t i = 0; i < n_; ++i) std::copy_n(inverse_.data() + i * n_, i + 1, left_.data() + i * n_);
    for (int64_t count = n_; count > 0; --count) {
      const auto [place, level] = cheapest(r, count);
      const int64_t column = columns_[static_cast<size_t>(place)];
      const auto of_block = static_cast<int>(column % format.block_values);
      format.set_level(row + column / format.block_values * format.block_bytes, of_block, level);
      eliminate(place, weights_[static_cast<size_t>(place)] - grid(column).at(of_block, level), count);
    }
  }

 private:
  const LevelGrid& grid(int64_t column) const {
    return grids_[static_cast<size_t>(column / matrix_.format->block_values)];
  }
  // The lower triangle of the inverse for the columns that are left, by place.
  double& at(int64_t i, int64_t j) { return left_[static_cast<size_t>(i * n_ + j)]; }

  struct Choice {
    int64_t place;
    int level;
  };
  Choice cheapest(int64_t r, int64_t count) {
    Choice best{0, 0};
    double least = std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t column = columns_[static_cast<size_t>(i)];
      const auto of_block = static_cast<int>(column % matrix_.format->block_values);
      const double weight = weights_[static_cast<size_t>(i)];
      const int level = grid(column).nearest(of_block, matrix_.pruned(r, column) ? 0 : weight);
      const double error = weight - grid(column).at(of_block, level), cost = error * error / at(i, i);
      if (cost < least || (cost == least && column < columns_[static_cast<size_t>(best.place)])) {
        least = cost;
        best = {i, level};
      }
    }
    return best;
  }

  // Moves the others, takes column and row `p` out of the inverse, and closes the gap with the last place.
  void eliminate(int64_t p, double error, int64_t count) {
    std::vector<double>& line = line_;
    line.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) line[static_cast<size_t>(i)] = i <= p ? at(p, i) : at(i, p);
    const double pivot = line[static_cast<size_t>(p)];
    for (int64_t i = 0; i < count; ++i)
      weights_[static_cast<size_t>(i)] -= error / pivot * line[static_cast<size_t>(i)];
    const int64_t last = count - 1;
    for (int64_t i = 0; i < count; ++i) {
      if (i == p) continue;
      double* const row = left_.data() + i * n_;
      const double factor = line[static_cast<size_t>(i)] / pivot;
      for (int64_t j = 0; j <= i; ++j) row[j] -= factor * line[static_cast<size_t>(j)];
    }
    if (p == last) return;
    for (int64_t j = 0; j < p; ++j) at(p, j) = at(last, j);
    for (int64_t i = p + 1; i < last; ++i) at(i, p) = at(last, i);
    at(p, p) = at(last, last);
    weights_[static_cast<size_t>(p)] = weights_[static_cast<size_t>(last)];
    columns_[static_cast<size_t>(p)] = columns_[static_cast<size_t>(last)];
  }

  PassMatrix& matrix_;
  const std::vector<double>& inverse_;
  int64_t n_;
  std::vector<LevelGrid> grids_;
  std::vector<double> left_, weights_, line_;  // by place, as columns_
  std::vector<int64_t> columns_;               // that are left
};

class Obq final : public Pass {
 public:
  explicit Obq(const ObqOptions& options) : options_(options) {}

  uint32_t needs() const override { return kSecondMoments; }
  std::string format() const override { return std::string(options_.format->name); }
  int64_t working_bytes(int64_t /*rows*/, int64_t cols) const override {
    if (cols > options_.columns) return 0;
    return ColumnFactor::bytes(cols) + (1 + available_cores()) * cols * cols * 8;
  }
  bool rounds_to_any_format() const override { return true; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    PassPreview out = preview_levels(matrix);
    if (out.action == "left" || matrix.cols <= options_.columns) return out;
    return preview_left(too_wide(matrix));
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = why_without_levels(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (matrix.cols > options_.columns) return PassRow{"left", too_wide(matrix), {}};
    if (!factor_.prepare(matrix, statistics, options_.damp, false, pool) || !prepare_inverse(pool))
      return PassRow{"left", "its inputs are all zero or not finite", {}};
    ErrorWeights weights;
    for (int64_t c = 0; c < matrix.cols; ++c)
      weights.columns.push_back(1 / inverse_[static_cast<size_t>(c * matrix.cols + c)]);
    round_blocks(matrix, options_.search, weights, pool);
    pool.parallel_for((matrix.rows + kGreedyRows - 1) / kGreedyRows, [&](int64_t task, int) {
      GreedyRounder rounder(matrix, inverse_);
      for (int64_t r = task * kGreedyRows; r < std::min(matrix.rows, (task + 1) * kGreedyRows); ++r) rounder.run(r);
    });
    return PassRow{"quantized", "", {{"damping", factor_.damping()}}};
  }

 private:
  std::string too_wide(const PassMatrix& matrix) const {
    return fmt::format("{} columns are more than columns={}; the time grows with their cube, use gptq", matrix.cols,
                       options_.columns);
  }

  // Of the moments of the last call of factor_.prepare().
  bool prepare_inverse(ThreadPool& pool) {
    const SecondMoments& moments = factor_.moments();
    const int64_t n = moments.columns();
    double damping = factor_.damping();
    for (int i = 0; i < kInverseTries; ++i, damping = std::max(damping * 10, 1e-6)) {
      inverse_ = moments.dense();
      for (int64_t c = 0; c < n; ++c) inverse_[static_cast<size_t>(c * n + c)] += damping * moments.diagonal_mean();
      if (invert_symmetric(inverse_, n, pool)) return true;
    }
    return false;
  }

  ObqOptions options_;
  ColumnFactor factor_;
  std::vector<double> inverse_;  // [cols, cols]
};

}  // namespace

Result<std::unique_ptr<Pass>> make_obq_pass(const OptionValues& values) {
  ObqOptions options;
  MILLRACE_TRY(options.format, level_format(values.text("format")));
  MILLRACE_TRY(options.search, fit_searches(values.text("fit")));
  options.damp = values.number("damp");
  options.columns = values.integer("columns");
  return std::unique_ptr<Pass>(std::make_unique<Obq>(options));
}

}  // namespace millrace
