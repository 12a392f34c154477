#include "compress/pruners/column_pruner.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace {
namespace {

constexpr int64_t kPrunedRows = 8;        // that one thread changes together, so that they share the factor's rows
constexpr int64_t kCarriedColumns = 512;  // columns that errors are carried to at a time
constexpr int kDampings = 8;

}  // namespace

bool DampedFactor::prepare(const LinearStatistics& statistics, double damp, ThreadPool& pool) {
  if (ready_ && id_ == statistics.id) return true;
  ready_ = false;
  id_ = statistics.id;
  std::vector<int32_t> order(static_cast<size_t>(statistics.moments.columns()));
  std::iota(order.begin(), order.end(), 0);
  const double mean = statistics.moments.diagonal_mean();
  if (!(mean > 0) || !(mean < 1e300)) return false;
  damping_ = damp;
  for (int i = 0; i < kDampings && !ready_; ++i) {
    if (i > 0) damping_ = std::max(damping_ * 10, 1e-6);
    ready_ = factor_.factor(statistics.moments, order, damping_ * mean, pool);
  }
  return ready_;
}

ColumnPruner::ColumnPruner(PassMatrix& matrix, const TriangleFactor& factor, const PrunePattern& pattern, int64_t block,
                           std::vector<double> more)
    : matrix_(matrix),
      factor_(factor),
      pattern_(pattern),
      cols_(matrix.cols),
      block_(pattern.grouped() ? std::max(block / pattern.of, int64_t{1}) * pattern.of : block),
      more_(std::move(more)),
      carried_(matrix.values.size()),
      scores_(pattern.grouped() ? 0 : static_cast<size_t>(matrix.rows * std::min(block, cols_))) {
  matrix_.kept.resize(matrix_.values.size(), 1);
}

int64_t ColumnPruner::working_bytes(int64_t rows, int64_t cols, int64_t block) {
  return rows * (cols * 9 + std::min(block, cols) * 16) + TriangleFactor::bytes(cols);
}

// The weights of columns [begin, end) as the errors of the columns before them have moved them, with the later ones of
// these still free; and what it costs to prune each.
void ColumnPruner::score(int64_t row, int64_t begin, int64_t end, double* scores) {
  std::vector<double> free(carried(row) + begin, carried(row) + end);
  for (int64_t c = begin; c < end; ++c) {
    const double* line = factor_.row(c);
    const double shift = free[static_cast<size_t>(c - begin)] / line[0];
    const double weight = values(row)[c] + shift;
    const double cost = line[0] * line[0] + (more_.empty() ? 0 : more_[static_cast<size_t>(c)]);
    scores[c - begin] = kept(row)[c] ? weight * weight * cost : -1;
    for (int64_t k = c + 1; k < end; ++k) free[static_cast<size_t>(k - begin)] -= line[k - c] * shift;
  }
}

void ColumnPruner::fix(int64_t row, int64_t begin, int64_t end, int64_t block_end, double* errors) {
  for (int64_t c = begin; c < end; ++c) {
    const double* line = factor_.row(c);
    const double weight = values(row)[c];
    const double moved = kept(row)[c] ? weight + carried(row)[c] / line[0] : 0;
    values(row)[c] = static_cast<float>(moved);
    const double error = weight - static_cast<double>(values(row)[c]);
    errors[c - begin] = error;
    for (int64_t k = c + 1; k < block_end; ++k) carried(row)[k] += line[k - c] * error;
  }
}

void ColumnPruner::carry(int64_t row, int64_t begin, int64_t end, int64_t to, int64_t to_end, const double* errors) {
  double* sums = carried(row);
  for (int64_t c = begin; c < end; ++c) {
    const double* line = factor_.row(c) - c;
    const double error = errors[c - begin];
    for (int64_t k = to; k < to_end; ++k) sums[k] += line[k] * error;
  }
}

void ColumnPruner::choose_in_groups(int64_t row, int64_t begin, int64_t end, double* errors) {
  std::vector<double> scores(static_cast<size_t>(pattern_.of)), sorted;
  for (int64_t group = begin; group < end; group += pattern_.of) {
    score(row, group, group + pattern_.of, scores.data());
    prune_lowest(scores.data(), pattern_.of, pattern_.pruned(pattern_.of), sorted, kept(row) + group);
    fix(row, group, group + pattern_.of, end, errors + (group - begin));
  }
}

void ColumnPruner::choose_in_block(int64_t begin, int64_t end, ThreadPool& pool) {
  const int64_t size = end - begin, count = matrix_.rows * size;
  pool.parallel_for(matrix_.rows,
                    [&](int64_t r, int) { score(r, begin, end, &scores_[static_cast<size_t>(r * size)]); });
  std::vector<double> sorted;
  std::vector<uint8_t> chosen(static_cast<size_t>(count), 1);
  prune_lowest(scores_.data(), count, pattern_.pruned(count), sorted, chosen.data());
  for (int64_t i = 0; i < count; ++i)
    if (!chosen[static_cast<size_t>(i)]) kept(i / size)[begin + i % size] = 0;
}

void ColumnPruner::run(ThreadPool& pool) {
  for (int64_t begin = 0; begin < cols_; begin += block_) {
    const int64_t end = std::min(cols_, begin + block_), size = end - begin;
    if (!pattern_.grouped()) choose_in_block(begin, end, pool);
    pool.parallel_for((matrix_.rows + kPrunedRows - 1) / kPrunedRows, [&](int64_t tile, int) {
      const int64_t first = tile * kPrunedRows, last = std::min(matrix_.rows, first + kPrunedRows);
      std::vector<double> errors(static_cast<size_t>(kPrunedRows * size));
      const auto errors_of = [&](int64_t row) { return &errors[static_cast<size_t>((row - first) * size)]; };
      for (int64_t r = first; r < last; ++r) {
        if (pattern_.grouped())
          choose_in_groups(r, begin, end, errors_of(r));
        else
          fix(r, begin, end, end, errors_of(r));
      }
      for (int64_t to = end; to < cols_; to += kCarriedColumns)
        for (int64_t r = first; r < last; ++r)
          carry(r, begin, end, to, std::min(cols_, to + kCarriedColumns), errors_of(r));
    });
  }
}

}  // namespace millrace
