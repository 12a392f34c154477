// FlatRows: finds the flat rows of a total, in which every key's weight is less than `below`. If the KV cache stores
// residuals (kv/row_residuals.h), flat rows are computed again with residuals, because errors of scores matter most
// where many keys have about the same weight (Wang et al., 2021, "SpAtten", progressive quantization). A row's result
// depends on its own keys alone.
#pragma once

#include <bitset>
#include <cmath>

#include "attention/partial.h"

namespace millrace {

inline constexpr int64_t kMaxFlatRows = 256;
using FlatRows = std::bitset<static_cast<size_t>(kMaxFlatRows)>;

// `total` must be complete. `rows`: at most kMaxFlatRows. A row that saw no key is not flat.
inline FlatRows flat_rows(const Partial& total, int64_t rows, double below) {
  FlatRows flat;
  for (int64_t row = 0; row < rows; ++row) {
    const double largest = std::exp(static_cast<double>(total.top[row]) - total.max[row]);
    flat[static_cast<size_t>(row)] = total.sum[row] > 0 && largest < below * total.sum[row];
  }
  return flat;
}

}  // namespace millrace
