// Scans of rows of logits for code that has no KernelTable. The last bits of sums differ between instruction sets, so
// sums may be used only for decisions that do not depend on these bits (see sampling/estimate.h).
#pragma once

#include <cstdint>

#include "kernels/candidate.h"

namespace millrace {

// The entries with these names in the fastest KernelTable of this machine (select_isa()).
struct RowScan {
  double (*exp_sum)(const float* x, double shift, int64_t n);
  double (*exp_sum_coarse)(const float* x, float shift, int64_t n);
  int64_t (*select_from)(const float* x, int64_t n, float least, int32_t first, Candidate* out);
};
const RowScan& fastest_row_scan();

inline constexpr double kExpSumError = 1e-12;       // relative error of each term
inline constexpr double kCoarseExpSumError = 1e-6;  // relative error of a sum
inline constexpr int64_t kSelectSlack = 16;         // number of entries that select_from may write after the last one

}  // namespace millrace
