// RIA (Zhang et al., 2024, "Plug-and-Play: An Efficient Post-Training Pruning Method for Large Language Models"):
// prunes by relative importance and activations,
//
//   RIA_ij = (|W_ij| / sum of |W_*j| + |W_ij| / sum of |W_i*|) * |X_j| ^ a
//
// with the norm |X_j| of input j over the calibration text. A weight that is large beside those of its own input or
// output channel stays, so that no channel is lost as a whole.
//
// With `permute`, the columns of a matrix are put into another order first, so that all but N of every M weights can go
// at the smallest loss of score (the paper's channel permutation): columns in order of their total are dealt out to
// the groups, and then, for each place in a group, one column of every group is dealt again, by the assignment with the
// largest total that is kept. Inputs are permuted in the same way at run time (tensor/weight_parts.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/factories.h"
#include "compress/matrix_parts.h"
#include "compress/output/preview.h"
#include "compress/pruners/assignment.h"
#include "compress/pruners/prune_pattern.h"

namespace millrace {
namespace {

constexpr int64_t kSumColumns = 64;  // that one thread sums

struct RiaOptions {
  PrunePattern pattern;
  bool whole_matrix = false, permute = false;
  double power = 0.5;  // a
};

double magnitude(float value) { return std::fabs(static_cast<double>(value)); }

// The scores of a matrix [rows, cols].
std::vector<double> ria_scores(const PassMatrix& matrix, const LinearStatistics& statistics, double power,
                               ThreadPool& pool) {
  const int64_t rows = matrix.rows, cols = matrix.cols;
  std::vector<double> column_sums(static_cast<size_t>(cols)), input(column_sums.size());
  pool.parallel_for((cols + kSumColumns - 1) / kSumColumns, [&](int64_t part, int) {
    const int64_t begin = part * kSumColumns, end = std::min(cols, begin + kSumColumns);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = begin; c < end; ++c)
        column_sums[static_cast<size_t>(c)] += magnitude(matrix.values[static_cast<size_t>(r * cols + c)]);
  });
  for (size_t c = 0; c < input.size(); ++c) input[c] = std::pow(std::sqrt(statistics.squares[c]), power);
  std::vector<double> scores(matrix.values.size());
  pool.parallel_for(rows, [&](int64_t r, int) {
    const float* values = matrix.values.data() + r * cols;
    double row_sum = 0;
    for (int64_t c = 0; c < cols; ++c) row_sum += magnitude(values[c]);
    for (int64_t c = 0; c < cols; ++c) {
      const double size = magnitude(values[c]), column_sum = column_sums[static_cast<size_t>(c)];
      if (size > 0)
        scores[static_cast<size_t>(r * cols + c)] =
            (size / column_sum + size / row_sum) * input[static_cast<size_t>(c)];
    }
  });
  return scores;
}

// Deals the columns of a matrix to groups of `of`, of which each row keeps the best `keep`.
class ColumnGroups {
 public:
  ColumnGroups(const std::vector<double>& scores, int64_t rows, int64_t cols, const PrunePattern& pattern)
      : scores_(scores), rows_(rows), cols_(cols), of_(pattern.of), keep_(pattern.keep), groups_(cols / pattern.of) {}

  std::vector<int32_t> order(ThreadPool& pool) {
    deal();
    if (keep_ > 0 && keep_ < of_)
      for (int64_t place = 0; place < of_; ++place) reassign(place, pool);
    for (int64_t g = 0; g < groups_; ++g) std::sort(columns_.begin() + g * of_, columns_.begin() + (g + 1) * of_);
    return columns_;
  }

 private:
  double score(int64_t row, int64_t col) const { return scores_[static_cast<size_t>(row * cols_ + col)]; }

  // The best columns one to each group, the next ones in the opposite order of groups, and so on.
  void deal() {
    std::vector<double> totals(static_cast<size_t>(cols_));
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < cols_; ++c) totals[static_cast<size_t>(c)] += score(r, c);
    std::vector<int32_t> sorted(static_cast<size_t>(cols_));
    std::iota(sorted.begin(), sorted.end(), 0);
    std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
      return totals[static_cast<size_t>(a)] > totals[static_cast<size_t>(b)];
    });
    columns_.resize(sorted.size());
    for (int64_t i = 0; i < cols_; ++i) {
      const int64_t place = i / groups_, at = i % groups_;
      const int64_t group = place % 2 == 0 ? at : groups_ - 1 - at;
      columns_[static_cast<size_t>(group * of_ + place)] = sorted[static_cast<size_t>(i)];
    }
  }

  // Of the group's columns without the one in `place`, each row keeps `keep`. A column that joins them adds what it has
  // over the last of these.
  std::vector<float> limits(int64_t group, int64_t place) const {
    std::vector<float> out(static_cast<size_t>(rows_));
    std::vector<double> others;
    for (int64_t r = 0; r < rows_; ++r) {
      others.clear();
      for (int64_t i = 0; i < of_; ++i)
        if (i != place) others.push_back(score(r, columns_[static_cast<size_t>(group * of_ + i)]));
      std::ranges::nth_element(others, others.begin() + (keep_ - 1), std::greater<>());
      out[static_cast<size_t>(r)] = static_cast<float>(others[static_cast<size_t>(keep_ - 1)]);
    }
    return out;
  }

  void reassign(int64_t place, ThreadPool& pool) {
    std::vector<float> candidates(static_cast<size_t>(groups_ * rows_));  // [groups, rows]
    std::vector<double> gains(static_cast<size_t>(groups_ * groups_));    // [candidate, group]
    const auto column = [&](int64_t group) -> int32_t& { return columns_[static_cast<size_t>(group * of_ + place)]; };
    pool.parallel_for(groups_, [&](int64_t k, int) {
      for (int64_t r = 0; r < rows_; ++r)
        candidates[static_cast<size_t>(k * rows_ + r)] = static_cast<float>(score(r, column(k)));
    });
    pool.parallel_for(groups_, [&](int64_t g, int) {
      const std::vector<float> limit = limits(g, place);
      for (int64_t k = 0; k < groups_; ++k) {
        const float* candidate = &candidates[static_cast<size_t>(k * rows_)];
        double gain = 0;
        for (int64_t r = 0; r < rows_; ++r) gain += std::max(0.0f, candidate[r] - limit[static_cast<size_t>(r)]);
        gains[static_cast<size_t>(k * groups_ + g)] = gain;
      }
    });
    const std::vector<int32_t> group_of = best_assignment(gains, groups_);
    std::vector<int32_t> moved(static_cast<size_t>(groups_));
    for (int64_t k = 0; k < groups_; ++k) moved[static_cast<size_t>(group_of[static_cast<size_t>(k)])] = column(k);
    for (int64_t g = 0; g < groups_; ++g) column(g) = moved[static_cast<size_t>(g)];
  }

  const std::vector<double>& scores_;
  int64_t rows_, cols_, of_, keep_, groups_;
  std::vector<int32_t> columns_;  // [groups, of]
};

class Ria final : public Pass {
 public:
  explicit Ria(const RiaOptions& options) : options_(options) {}

  uint32_t needs() const override { return kInputNorms; }
  bool orders_inputs() const override { return options_.permute; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    const int64_t groups = options_.permute ? cols / options_.pattern.of : 0;
    return prune_working_bytes(rows, cols, options_.whole_matrix) + 2 * rows * cols * 8 +
           groups * (rows * 4 + groups * 8);
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    PassPreview out = preview_pruned(matrix, options_.pattern);
    if (out.action == "left" || !options_.permute) return out;
    if (matrix.no_parts.empty() && matrix.parts.input.empty()) preview_order(matrix);
    return out;
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (PassRow left = left_alone(matrix, options_.pattern); !left.action.empty()) return left;
    std::vector<double> scores = ria_scores(matrix, statistics, options_.power, pool);
    PassRow row{"pruned", "", {}};
    if (options_.permute && matrix.no_parts.empty() && matrix.parts.input.empty()) {
      row.figures.emplace_back("kept_score_as_stored", kept_score(matrix, scores, pool));
      permute(matrix, scores, pool);
      row.figures.emplace_back("kept_score", kept_score(matrix, scores, pool));
    } else if (options_.permute) {
      row.why = fmt::format("its columns stay in their order: {}",
                            matrix.no_parts.empty() ? "another pass changed its inputs" : matrix.no_parts);
    }
    prune(matrix, scores, pool);
    return row;
  }

 private:
  void prune(PassMatrix& matrix, const std::vector<double>& scores, ThreadPool& pool) const {
    const auto read = [&](int64_t r, double* out) {
      std::copy_n(&scores[static_cast<size_t>(r * matrix.cols)], matrix.cols, out);
    };
    prune_by_scores(matrix, options_.pattern, options_.whole_matrix, read, pool);
  }

  // The part of all scores that the pattern would leave with the columns as they are.
  double kept_score(const PassMatrix& matrix, const std::vector<double>& scores, ThreadPool& pool) const {
    PassMatrix trial;
    trial.rows = matrix.rows;
    trial.cols = matrix.cols;
    trial.values.resize(matrix.values.size());
    trial.kept = matrix.kept;
    prune(trial, scores, pool);
    double kept = 0, all = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      all += scores[i];
      kept += trial.kept[i] ? scores[i] : 0;
    }
    return all > 0 ? kept / all : 1;
  }

  void permute(PassMatrix& matrix, std::vector<double>& scores, ThreadPool& pool) const {
    const std::vector<int32_t> order = ColumnGroups(scores, matrix.rows, matrix.cols, options_.pattern).order(pool);
    order_inputs(matrix, order, pool);
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      double* line = &scores[static_cast<size_t>(r * matrix.cols)];
      const std::vector<double> before(line, line + matrix.cols);
      for (int64_t c = 0; c < matrix.cols; ++c) line[c] = before[static_cast<size_t>(order[static_cast<size_t>(c)])];
    });
  }

  RiaOptions options_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_ria_pass(const OptionValues& values) {
  RiaOptions options;
  MILLRACE_TRY(options.pattern, read_pattern(values));
  MILLRACE_TRY(const bool whole_matrix, read_matrix_scope(values));
  options.whole_matrix = whole_matrix && !options.pattern.grouped();
  options.power = values.number("power");
  options.permute = values.boolean("permute");
  if (options.permute && !options.pattern.grouped())
    return Error::user("permute: columns are put into groups, so give a pattern, such as pattern=2:4");
  return std::unique_ptr<Pass>(std::make_unique<Ria>(options));
}

}  // namespace millrace
