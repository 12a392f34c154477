// Scans of rows of logits for code that has no KernelTable. The last bits of sums differ by instruction set, so sums
// are only for decisions whose outcome does not depend on these bits: see sampling/estimate.h.
#pragma once

#include <cstdint>

#include "kernels/candidate.h"

namespace millrace {

// Entries of the same names in the fastest KernelTable of this machine (select_isa()).
struct RowScan {
  double (*exp_sum)(const float* x, double shift, int64_t n);
  double (*exp_sum_coarse)(const float* x, float shift, int64_t n);
  int64_t (*select_from)(const float* x, int64_t n, float least, int32_t first, Candidate* out);
};
const RowScan& fastest_row_scan();

inline constexpr double kExpSumError = 1e-12;       // relative, of each term
inline constexpr double kCoarseExpSumError = 1e-6;  // relative, of a sum
inline constexpr int64_t kSelectSlack = 16;         // entries that select_from may write behind the last one

}  // namespace millrace
