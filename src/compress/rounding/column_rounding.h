// Rounds the columns of a matrix one after the other, where each column compensates the errors of the earlier ones.
// This is GPTQ's rule; QuIP's authors prove that it equals their LDLQ. An error e of a row costs e^T H e, where H = R
// R^T are the second moments of the inputs and R is upper triangular. This cost is the sum of (R^T e)_i ^ 2. With the
// errors e_j = w_j - q_j of the earlier columns, column i rounds
//
//   w_i + carried_i / R_ii,   carried_i = sum over j < i of R_ji e_j
//
// In exact arithmetic, this equals the paper's updates with the Cholesky factor of H^-1, but it needs no inverse. Rows
// are independent; the sums of a row have a fixed order.
#pragma once

#include <cstdint>
#include <vector>

#include "compress/pass.h"
#include "compress/rounding/triangle_factor.h"

namespace millrace {

struct RoundingOptions {
  bool by_activation = false;  // true: columns with large inputs are rounded first
  int clips = 0;               // `clips` of LevelGrid::choose()
  bool search = false;         // true: ScaleSearch chooses the scales
};

// The factor R of the second moments of a stored matrix's inputs. Matrices that read the same rows and change them in
// the same way share it.
class ColumnFactor {
 public:
  // Does not include the moments of changed inputs, changed_moments_bytes().
  static int64_t bytes(int64_t cols) { return TriangleFactor::bytes(cols); }

  // Computes the factor, with `damp` times the mean of the diagonal added to the diagonal. If the sum is not positive
  // definite, tries again with ten times the damping. Returns false if the inputs are all zero or not finite.
  bool prepare(const PassMatrix& matrix, const LinearStatistics& statistics, double damp, bool by_activation,
               ThreadPool& pool);

  const TriangleFactor& factor() const { return factor_; }
  const std::vector<int32_t>& order() const { return order_; }  // order of the columns in the factor
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

// Fills `matrix.encoded`. `order`: order of the columns in `factor`. `exact`: [rows, cols], 1 for weights that are also
// stored separately, or empty. Such weights count as rounded without error; their `values` are replaced by values that
// compensate the errors of earlier columns.
void round_columns(PassMatrix& matrix, const TriangleFactor& factor, const std::vector<int32_t>& order,
                   const RoundingOptions& options, const std::vector<uint8_t>& exact, ThreadPool& pool);

// Returns a quantizer's number format, which must have levels. Errors: user.
Result<const Format*> level_format(const std::string& name);
// Reads the option "fit". Returns false for "plain" and true for "search". Errors: user.
Result<bool> fit_searches(const std::string& fit);
// Returns the reason why a pass cannot choose levels for the matrix; "": it can.
std::string why_without_levels(const PassMatrix& matrix);

}  // namespace millrace
