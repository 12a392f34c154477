// PrunePattern: which part of a matrix a pruner sets to zero: a fraction of its weights, or all but N of every M
// weights of a row; and the choice of the weights by their scores. Stateless; the choice is the same for any number of
// threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compress/pass.h"

namespace millrace {

struct PrunePattern {
  double sparsity = 0;
  int64_t keep = 0, of = 0;  // 0 for `of`: no groups, `sparsity` is used

  bool grouped() const { return of > 0; }
  int64_t group(int64_t cols) const { return grouped() ? of : cols; }
  // Number of pruned weights of a group, or of any number of weights where there are no groups.
  int64_t pruned(int64_t weights) const {
    return grouped() ? of - keep : static_cast<int64_t>(sparsity * static_cast<double>(weights));
  }
};

// Reads the options "sparsity" and, if there is one, "pattern". Errors: user.
Result<PrunePattern> read_pattern(const OptionValues& options);
// Option "scope": true: `sparsity` is a fraction of the whole matrix; false: of each row. Errors: user.
Result<bool> read_matrix_scope(const OptionValues& options);

// The row of the report for a matrix that this pattern leaves alone; no action: it can be pruned.
PassRow left_alone(const PassMatrix& matrix, const PrunePattern& pattern);

// Preview for a matrix without values: pruned, unless it is left alone.
PassPreview preview_pruned(PassMatrix& matrix, const PrunePattern& pattern);

// Prunes `count` of `size` weights: those with the lowest scores, of equal ones the first. `sorted` is scratch.
void prune_lowest(const double* scores, int64_t size, int64_t count, std::vector<double>& sorted, uint8_t* kept);

// Fills the scores of one row. Weights that an earlier pass pruned are pruned first, for any score.
using RowScores = std::function<void(int64_t row, double* scores)>;  // [cols]
// Prunes by rows, by groups of a row, or with `whole_matrix`, which no grouped pattern has, over the whole matrix.
void prune_by_scores(PassMatrix& matrix, const PrunePattern& pattern, bool whole_matrix, const RowScores& scores,
                     ThreadPool& pool);
int64_t prune_working_bytes(int64_t rows, int64_t cols, bool whole_matrix);

}  // namespace millrace
