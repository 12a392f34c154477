// PrunePattern says how many weights of a matrix a pruner sets to zero: a fraction of them, or all but N of every M
// weights of a row. The functions below choose the weights by their scores. Stateless; the choice is the same for any
// number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compress/pass.h"

namespace millrace {

struct PrunePattern {
  double sparsity = 0;
  int64_t keep = 0, of = 0;  // `keep` of every `of` weights remain; `of` is 0: no groups, `sparsity` is used

  bool grouped() const { return of > 0; }
  int64_t group(int64_t cols) const { return grouped() ? of : cols; }
  // Returns how many weights of a group are pruned. Without groups: how many of `weights` weights.
  int64_t pruned(int64_t weights) const {
    return grouped() ? of - keep : static_cast<int64_t>(sparsity * static_cast<double>(weights));
  }
};

// Reads the options "sparsity" and, if there is one, "pattern". Errors: user.
Result<PrunePattern> read_pattern(const OptionValues& options);
// Reads the option "scope". Returns true if `sparsity` is a fraction of the whole matrix, false if it is a fraction of
// each row. Errors: user.
Result<bool> read_matrix_scope(const OptionValues& options);

// Returns the report's row for a matrix that this pattern leaves alone, with the reason. If the matrix can be pruned,
// the row's `action` is empty.
PassRow left_alone(const PassMatrix& matrix, const PrunePattern& pattern);

// Returns the preview for a matrix whose values are not known yet: "pruned", or "left" with the reason. If the matrix
// will be pruned, sets matrix.kept, so that previews of later passes see that there are pruned weights.
PassPreview preview_pruned(PassMatrix& matrix, const PrunePattern& pattern);

// Prunes `count` of `size` weights: those with the lowest scores, and among equal scores the first ones. Their entries
// of `kept` become 0. `sorted` is scratch.
void prune_lowest(const double* scores, int64_t size, int64_t count, std::vector<double>& sorted, uint8_t* kept);

// Fills the scores of one row. Weights that an earlier pass pruned are pruned first, even with high scores.
using RowScores = std::function<void(int64_t row, double* scores)>;  // [cols]
// Prunes the weights with the lowest scores of each group, or of each row if the pattern has no groups. With
// `whole_matrix`, prunes those of the whole matrix; not for patterns with groups.
void prune_by_scores(PassMatrix& matrix, const PrunePattern& pattern, bool whole_matrix, const RowScores& scores,
                     ThreadPool& pool);
int64_t prune_working_bytes(int64_t rows, int64_t cols, bool whole_matrix);

}  // namespace millrace
