// LinearProgram: minimizes a linear cost under linear constraints, exactly. Solved by CLP (COIN-OR), which is loaded
// when the first program is solved: few runs need it. Thread-compatible.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace {

class LinearProgram {
 public:
  static constexpr double kInfinity = std::numeric_limits<double>::max();  // CLP's

  // Columns are numbered from 0 on, and lie between 0 and 1 at first.
  explicit LinearProgram(int columns);
  void set_cost(int column, double cost) { costs_[static_cast<size_t>(column)] = cost; }
  void set_bounds(int column, double low, double high);
  // low <= sum of coefficient * column <= high
  void add_row(const std::vector<std::pair<int, double>>& entries, double low, double high);

  // Returns the columns' values. Errors: resource (no values satisfy the rows), unsupported (CLP is not on this
  // machine), internal.
  Result<std::vector<double>> minimize() const;

 private:
  struct Entry {
    int row = 0;
    double value = 0;
  };
  std::vector<std::vector<Entry>> columns_;
  std::vector<double> low_, high_, costs_, row_low_, row_high_;
};

}  // namespace millrace
