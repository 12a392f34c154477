// Rounding the columns of a matrix one after the other, where each column compensates the errors of the earlier ones
// (GPTQ's rule, which QuIP's authors call LDLQ and prove to be the same). The error e of a row costs e^T H e, with the
// second moments H = R R^T of the inputs, R upper triangular, and e^T H e = sum of (R^T e)_i ^ 2. With the errors e_j =
// w_j - q_j of the earlier columns, column i rounds
//
//   w_i + carried_i / R_ii,   carried_i = sum over j < i of R_ji e_j
//
// which equals the paper's updates with the Cholesky factor of H^-1 in exact arithmetic, and needs no inverse. Rows are
// independent; the sums of a row have a fixed order.
#pragma once

#include <cstdint>
#include <vector>

#include "compress/pass.h"
#include "compress/rounding/triangle_factor.h"

namespace millrace {

struct RoundingOptions {
  bool by_activation = false;  // columns of large inputs first
  int clips = 0;               // argument of LevelGrid::choose
  bool search = false;         // scales by ScaleSearch
};

// The factor of the second moments that a stored matrix's columns have. Matrices that read the same rows and change
// them the same way share it.
class ColumnFactor {
 public:
  // Without the moments of changed inputs, changed_moments_bytes().
  static int64_t bytes(int64_t cols) { return TriangleFactor::bytes(cols); }

  // `damp`: added to the diagonal, times its mean; ten times as much until there is a factor. False: the inputs are all
  // zero or not finite.
  bool prepare(const PassMatrix& matrix, const LinearStatistics& statistics, double damp, bool by_activation,
               ThreadPool& pool);

  const TriangleFactor& factor() const { return factor_; }
  const std::vector<int32_t>& order() const { return order_; }  // order of the columns
  const SecondMoments& moments() const { return *moments_; }    // second moments of the stored columns' inputs
  double damping() const { return damping_; }

 private:
  bool ready_ = false;
  LinearId id_;
  InputChange change_;
  double damping_ = 0;
  std::vector<int32_t> order_;
  SecondMoments changed_;
  const SecondMoments* moments_ = nullptr;
  TriangleFactor factor_;
};

// Fills `matrix.encoded`. `order`: order of the columns in `factor`. `exact`: [rows, cols] or empty; weights that are
// stored in addition to the matrix, and count as rounded without error. Their `values` are replaced by values that
// compensate the errors before them.
void round_columns(PassMatrix& matrix, const TriangleFactor& factor, const std::vector<int32_t>& order,
                   const RoundingOptions& options, const std::vector<uint8_t>& exact, ThreadPool& pool);

// The number format of a quantizer, which must have levels. Errors: user.
Result<const Format*> level_format(const std::string& name);
// "plain" or "search", of an option fit. Errors: user.
Result<bool> fit_searches(const std::string& fit);
// "", or why a pass that chooses levels leaves the matrix alone.
std::string why_without_levels(const PassMatrix& matrix);

}  // namespace millrace
