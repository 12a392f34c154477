// Products of matrices with a codebook (tensor/codebook.h), of three kinds:
//
// table16   one table of at most 16 single weights a row (codebook_is_table16()). The table is rounded to 8 bits
//           (codebook_table16()), and the matrix multiplied as one of Q8_0 whose blocks all have the row's scale, in
//           f32: Activation::q8, exact integer dots of 32 columns and the order of sums of quant_shape.h.
// codewords indices that name words of eight weights, which are rounded to 8 bits (round_codewords()). The sums of the
//           words of all books are a matrix of int8, each row under one scale, and multiplied as with table16.
// any       Weights are what the codebook says, and inputs f32: columns are cut into folds of 512; in a fold, lane l of
//           16 sums columns l, l + 16, ... in ascending order, with one rounding per fma; lanes i and i + 8 are added,
//           then + 4, + 2, + 1; folds are added to 0 in ascending order.
//
// So every instruction set computes the same bits. Packed layouts: "rows", of any codebook, are the stored rows; tables
// stay in the Codebook. Those of table16 and codewords are in vector/matmul_codebook_pack.h and
// vector/matmul_codewords_pack.h; the reference stores each row's Table16, or scale, before its indices.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr int64_t kCodebookFold = 512;

}  // namespace millrace
