// Rounding a matrix to points of E8P (formats/e8p_codebook.h), or to sums of two points with 3 and 4 bits
// (formats/e8p_residual.h): block LDLQ of Tseng et al., 2024 ("QuIP#"), which is
// compress/rounding/column_rounding.h with eight columns at a time. With the errors e_j = w_j - q_j of the earlier
// columns and H = R R^T, the eight columns B become the point nearest to
//
//   w_B + z,   R_BB^T z = carried_B,   carried_i = sum over j < B of R_ji e_j
//
// Then sweeps, as in the paper's code: with all other columns fixed, eight columns become the point nearest to where
// the squared output error is least, if that makes it smaller. Rows are independent, and the sums of a row have a fixed
// order.
#pragma once

#include "compress/pass.h"
#include "compress/rounding/triangle_factor.h"

namespace millrace {

struct LatticeOptions {
  bool search = true;  // several scales for each 256 weights, of which the least error wins; else the paper's one
  int sweeps = 0;      // at most; fewer once nothing changes
};

// Fills `matrix.encoded`; the matrix's format has a LatticeCode. `factor`: of the columns as they are stored;
// `moments`: theirs.
void round_to_lattice(PassMatrix& matrix, const TriangleFactor& factor, const SecondMoments& moments,
                      const LatticeOptions& options, ThreadPool& pool);
// Beside the matrix, its moments and the factor.
int64_t lattice_bytes(int64_t cols);

}  // namespace millrace
