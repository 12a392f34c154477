// Factorizer: a pass that stores a pair B A of low rank in place of a matrix, so that a product is two thin ones.
// Members differ in the weights of the outputs' error, or in how they find B.
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
  double ratio = 0.5;              // the pair's values, as a part of the matrix's
  double loss = 0;                 // more than 0: in place of `ratio`, the smallest rank that drops at most this energy
  const Format* format = nullptr;  // format of the pair
  std::string rest;                // number format of the matrices that are left; empty: unchanged
};

// A format by name that GGUF files can have, and that is fit for factors if it is that of the `pair`. Errors: user.
Result<const Format*> factor_format(const std::string& name, bool pair);
// From a member's options, which are those of factor_options(). Errors: user.
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
  // `count` orthonormal columns, or any that are independent, as rows.
  virtual OutputBasis basis(const PassMatrix& matrix, const LinearStatistics& statistics, int64_t count,
                            ThreadPool& pool) const = 0;
  // Called after the pair is in place.
  virtual void complete(PassMatrix& /*matrix*/, const LinearStatistics& /*statistics*/, ThreadPool& /*pool*/) const {}

  // Adds to the preview the parts that complete() adds to the pair.
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
