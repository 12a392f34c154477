// Incoherence processing of a matrix before it is rounded (Chee et al., 2023, QuIP; Tseng et al., 2024, QuIP#): the
// columns are multiplied by a random orthogonal matrix, so that no weight is much larger than the others. At run time
// the inputs are multiplied by it, too. The matrix consists of random signs S and a Hadamard matrix H for each block of
// columns.
//
//   y = (W S H) (H S x)
#pragma once

#include <cstdint>
#include <string>

#include "compress/pass.h"

namespace millrace {

// Returns the reason why a matrix cannot be multiplied, for example "it is pruned ..."; empty: it can.
std::string why_not_incoherent(const PassMatrix& matrix);

// Fills the matrix's input change and multiplies its columns. The block size is the largest power of two that divides
// the number of columns, at most 65536. Signs depend only on the seed and the inputs' place in the model.
void make_incoherent(PassMatrix& matrix, const LinearId& id, uint64_t seed, ThreadPool& pool);

// Fills the matrix's output change, o(y) = S H y with other signs, and multiplies its rows. The block size is the
// largest power of two that divides half of the rows, so no block crosses the halves of a fused matrix. Does not change
// fused matrices of queries, keys and values, because their parts have different sizes.
//
//   y = S H (H S W) x
void make_rows_incoherent(PassMatrix& matrix, uint64_t seed, ThreadPool& pool);

// Set the sizes of the input and output change, without values.
void preview_incoherent(PassMatrix& matrix);
void preview_rows_incoherent(PassMatrix& matrix);

}  // namespace millrace
