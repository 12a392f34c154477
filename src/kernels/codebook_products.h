// Products of matrices with a codebook (tensor/codebook.h). All use int8 inputs and the order of sums of Q8_0
// (quant_shape.h): exact integer dots of 32 columns, each times a scale of the row and, in some layouts, of the
// columns.
//
// table16   tables of at most 16 single weights, each for whole groups of 32 columns of a row (codebook_is_table16()),
//           and rounded to 8 bits under a scale of its own, in f32 (codebook_table16()).
// codewords indices that name words of eight weights, which are rounded to 8 bits (round_codewords()). The sums of the
//           words of all books are a matrix of int8, each row under one scale, in f32.
// others    are decoded and rounded to Q8_0 when they are packed, rows as if zeros followed up to a whole group of 32
//           columns. They have no kernels of their own.
//
// So every instruction set computes the same bits. Packed layouts are in vector/matmul_codebook_pack.h and
// vector/matmul_codewords_pack.h; the reference stores each row's Table16s, or scale, before its indices.
#pragma once

#include "formats/format.h"

namespace millrace {

struct Codebook;

// Returns the format in which a matrix with this codebook is multiplied: table16_indices(), codeword_indices(), or
// Q8_0.
const Format& codebook_format(const Codebook& book);
// Returns an upper bound of the weights' magnitudes. kMaxQ8Weight: the largest magnitude that Q8_0 can hold.
double largest_weight(const Codebook& book);
inline constexpr double kMaxQ8Weight = 65504.0 * 127;

}  // namespace millrace
