// Rounds a matrix to points of E8P (formats/e8p_codebook.h), or to sums of two points with 3 or 4 bits a weight
// (formats/e8p_residual.h). It uses block LDLQ of Tseng et al., 2024 ("QuIP#"): column_rounding.h with eight columns at
// a time. With the errors e_j = w_j - q_j of the earlier columns and H = R R^T, the eight columns B become the point
// nearest to
//
//   w_B + z,   R_BB^T z = carried_B,   carried_i = sum over j < B of R_ji e_j
//
// Sweeps follow, as in the paper's code. With all other columns fixed, eight columns become the point nearest to the
// minimum of the squared output error, if that reduces the error. Rows are independent, and the sums of a row have a
// fixed order.
#pragma once

#include "compress/pass.h"
#include "compress/rounding/triangle_factor.h"

namespace millrace {

struct LatticeOptions {
  bool search = true;  // true: tries several scales for each 256 weights and uses the best; false: the paper's scale
  int sweeps = 0;      // maximum number of sweeps; they end when nothing changes
};

// Fills `matrix.encoded`. The matrix's format must have a LatticeCode. `factor`, `moments`: of the inputs of the stored
// columns.
void round_to_lattice(PassMatrix& matrix, const TriangleFactor& factor, const SecondMoments& moments,
                      const LatticeOptions& options, ThreadPool& pool);
// Returns the bytes needed in addition to the matrix, its moments and the factor.
int64_t lattice_bytes(int64_t cols);

}  // namespace millrace
