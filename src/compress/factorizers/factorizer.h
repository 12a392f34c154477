// Factorizer: a pass that stores a low-rank pair B A in place of a matrix, so that one product becomes two thin ones.
// Derived classes differ in the weights of the outputs' error, or in how they find B.
//
//   W [rows, cols]  ->  y = B (A x)     A [rank, cols], B [rows, rank], each in a number format of its own
//
// B is rounded first, and A is then solved for the rounded B (as by Saha et al., 2023), so that A compensates a part of
// B's rounding error. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "compress/factorizers/low_rank.h"
#include "compress/pass.h"

namespace millrace {

struct FactorOptions {
  double ratio = 0.5;  // number of the pair's values, as a fraction of the matrix's
  // Greater than 0: replaces `ratio`; the rank is the smallest that drops at most this fraction of the energy.
  double loss = 0;
  const Format* format = nullptr;  // format of the pair
  std::string rest;                // number format of the matrices that are not factored; empty: unchanged
};

// Finds a format that GGUF files can have. `pair`: true: it must also be suitable for factors. Errors: user.
Result<const Format*> factor_format(const std::string& name, bool pair);
// Reads the options of factor_options(). Errors: user.
Result<FactorOptions> read_factor_options(const OptionValues& options);

class Factorizer : public Pass {
 public:
  explicit Factorizer(FactorOptions options) : options_(std::move(options)) {}

  std::string format() const override { return options_.rest; }
  bool fixes_levels() const override { return true; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override;
  Result<PassPreview> preview(PassMatrix& matrix) const override;
  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override;

 protected:
  // Returns the `count` columns of B, as rows of OutputBasis::vectors: orthonormal, or at least independent.
  virtual OutputBasis basis(const PassMatrix& matrix, const LinearStatistics& statistics, int64_t count,
                            ThreadPool& pool) const = 0;
  // Called after the pair is stored in the matrix's parts.
  virtual void complete(PassMatrix& /*matrix*/, const LinearStatistics& /*statistics*/, ThreadPool& /*pool*/) const {}

  // Adds the parts to the preview that complete() adds to the matrix.
  virtual void preview_rest(PassMatrix& /*matrix*/) const {}

 private:
  int64_t block() const { return options_.format->block_values; }
  int64_t most_rank(int64_t rows, int64_t cols) const;
  int64_t rank_by_ratio(int64_t rows, int64_t cols) const;
  std::string cannot_factor(const PassMatrix& matrix) const;
  void store(PassMatrix& matrix, std::vector<double> vectors, int64_t rank, ThreadPool& pool) const;

  FactorOptions options_;
};

}  // namespace millrace
