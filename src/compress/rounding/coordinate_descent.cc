#include "compress/rounding/coordinate_descent.h"

#include <algorithm>
#include <vector>

#include "compress/calibration/dense_sums.h"
#include "compress/rounding/level_grid.h"

namespace millrace {
namespace {

constexpr int64_t kRowsOfTask = 8;

class RowDescent {
 public:
  RowDescent(PassMatrix& matrix, const std::vector<double>& h)
      : matrix_(matrix),
        h_(h),
        grids_(static_cast<size_t>(matrix.cols / matrix.format->block_values), LevelGrid(*matrix.format)),
        decoded_(static_cast<size_t>(matrix.cols)),
        error_(decoded_.size()),
        slope_(decoded_.size()) {}

  // Sweeps one row; adds the levels that changed.
  int run(int64_t r, int most, int64_t& changed) {
    const Format& format = *matrix_.format;
    const int64_t n = matrix_.cols;
    uint8_t* const row = matrix_.encoded.data() + r * format.row_bytes(n);
    format.decode(row, decoded_.data(), n);
    for (size_t b = 0; b < grids_.size(); ++b) grids_[b].read(row + static_cast<int64_t>(b) * format.block_bytes);
    for (int64_t c = 0; c < n; ++c)
      error_[static_cast<size_t>(c)] =
          double{matrix_.values[static_cast<size_t>(r * n + c)]} - decoded_[static_cast<size_t>(c)];
    for (int64_t c = 0; c < n; ++c) slope_[static_cast<size_t>(c)] = dot_product(line(c), error_.data(), n);
    int sweep = 0;
    for (int64_t moved = 1; moved > 0 && sweep < most; ++sweep) {
      moved = 0;
      for (int64_t c = 0; c < n; ++c) moved += !matrix_.pruned(r, c) && improve(row, c);
      changed += moved;
    }
    return sweep;
  }

 private:
  const double* line(int64_t c) const { return h_.data() + c * matrix_.cols; }

  // The level nearest to where the error of the row is least, the others given.
  bool improve(uint8_t* row, int64_t c) {
    const Format& format = *matrix_.format;
    const auto at = static_cast<size_t>(c);
    const double own = line(c)[c];
    if (!(own > 0)) return false;
    const LevelGrid& grid = grids_[static_cast<size_t>(c / format.block_values)];
    const auto place = static_cast<int>(c % format.block_values);
    const double least = decoded_[at] + slope_[at] / own;
    const int level = grid.nearest(place, least);
    const float value = grid.at(place, level);
    // Only what is nearer by more than rounding errors, so that sweeps end.
    if (!(std::abs(value - least) < std::abs(decoded_[at] - least) * (1 - 1e-9))) return false;
    format.set_level(row + c / format.block_values * format.block_bytes, place, level);
    const double step = double{value} - decoded_[at];
    decoded_[at] = value;
    error_[at] -= step;
    for (int64_t k = 0; k < matrix_.cols; ++k) slope_[static_cast<size_t>(k)] -= line(c)[k] * step;
    return true;
  }

  PassMatrix& matrix_;
  const std::vector<double>& h_;  // [cols, cols]
  std::vector<LevelGrid> grids_;  // of each block of the row
  std::vector<float> decoded_;
  std::vector<double> error_, slope_;  // w - q, and H of it
};

}  // namespace

int64_t descent_bytes(int64_t cols) { return cols * cols * 8; }

DescentResult descend(PassMatrix& matrix, const SecondMoments& moments, int sweeps, ThreadPool& pool) {
  const std::vector<double> h = moments.dense();
  const int64_t tasks = (matrix.rows + kRowsOfTask - 1) / kRowsOfTask;
  std::vector<DescentResult> of_task(static_cast<size_t>(tasks));
  pool.parallel_for(tasks, [&](int64_t task, int) {
    DescentResult& own = of_task[static_cast<size_t>(task)];
    RowDescent descent(matrix, h);
    for (int64_t r = task * kRowsOfTask; r < std::min(matrix.rows, (task + 1) * kRowsOfTask); ++r)
      own.sweeps = std::max(own.sweeps, descent.run(r, sweeps, own.changed));
  });
  DescentResult out;
  for (const DescentResult& one : of_task) {
    out.changed += one.changed;
    out.sweeps = std::max(out.sweeps, one.sweeps);
  }
  return out;
}

}  // namespace millrace
