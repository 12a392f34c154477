// Products of matrices with a codebook (tensor/codebook.h), of two kinds:
//
// table16   one table of at most 16 single weights a row (codebook_is_table16()). The table is rounded to 8 bits
//           (codebook_table16()), and the matrix multiplied as one of Q8_0 whose blocks all have the row's scale, in
//           f32: Activation::q8, exact integer dots of 32 columns and the order of sums of quant_shape.h.
// any       Weights are what the codebook says, and inputs f32: columns are cut into folds of 512; in a fold, lane l of
//           16 sums columns l, l + 16, ... in ascending order, with one rounding per fma; lanes i and i + 8 are added,
//           then + 4, + 2, + 1; folds are added to 0 in ascending order.
//
// So every instruction set computes the same bits. Packed layouts: "rows", of any codebook, are the stored rows; tables
// stay in the Codebook. That of table16 on x86 is in x86/matmul_codebook_pack.h; the reference stores each row's
// Table16 before its indices.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr int64_t kCodebookFold = 512;

}  // namespace millrace
