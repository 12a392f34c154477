// States that are one matrix per head, for mixers whose tokens update them with the kernel of kernels/matrix_scan.h.
// Work is divided among threads by groups of columns, which stay in the first-level cache over all the tokens of a
// span. So that each group is contiguous, the matrix of a head, [state][inner / heads] numbers, is stored as
//
//   [state][kMatrixScanColumns] | [state][kMatrixScanColumns] | ... | [state][columns that are left]
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/matrix_scan.h"
#include "models/blocks/blocks.h"
#include "models/mixers/marked_pieces.h"

namespace millrace {

// Columns [first, first + count) of one head's matrix.
struct MatrixColumns {
  int64_t head, first, count;

  // Returns their place among the matrices of `dim` columns and `keys` rows each.
  float* of(float* matrices, int64_t keys, int64_t dim) const { return matrices + keys * (head * dim + first); }
};

inline double softplus(double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

// Calls update(piece, columns) on all threads, for every span's pieces between its marks, and all columns of every
// head. The matrices begin behind `before` values of a layer's state.
template <typename Update>
void for_matrix_columns(const MixerCall& call, int64_t before, const Update& update) {
  const SsmSpec& ssm = call.layer.ssm;
  const int64_t dim = ssm.inner / ssm.heads, groups = (dim + kMatrixScanColumns - 1) / kMatrixScanColumns;
  const int64_t spans = std::ssize(call.batch.spans), units = ssm.heads * groups;
  for_rows(call.context, spans * units, 4 * ssm.state * std::min(dim, kMatrixScanColumns) * call.batch.size() / spans,
           [&](int64_t i) {
             const int64_t first = i % groups * kMatrixScanColumns;
             const MatrixColumns at{i % units / groups, first, std::min(kMatrixScanColumns, dim - first)};
             const StatePart part{before + ssm.state * (at.head * dim + at.first), ssm.state * at.count};
             run_marked_pieces(call, call.batch.spans[static_cast<size_t>(i / units)], part,
                               [&](const BatchSpan& piece) { update(piece, at); });
           });
}

}  // namespace millrace
