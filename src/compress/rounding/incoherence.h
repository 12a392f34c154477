// Incoherence processing of a matrix before it is rounded (Chee et al., 2023, QuIP; Tseng et al., 2024, QuIP#): the
// columns are multiplied by an orthogonal random matrix, random signs and then Hadamard matrices of blocks of columns,
// so that no weight is much larger than the others; at run time the inputs are multiplied by it, too.
//
//   y = (W S H) (H S x)
#pragma once

#include <cstdint>
#include <string>

#include "compress/pass.h"

namespace millrace {

// Empty, or why a matrix cannot be multiplied: "it is pruned ..."
std::string why_not_incoherent(const PassMatrix& matrix);

// Fills the matrix's input change and multiplies its columns. The block size is the largest power of two that divides
// the columns, 65536 at most. Signs depend on the seed and the inputs' place in the model alone.
void make_incoherent(PassMatrix& matrix, const LinearId& id, uint64_t seed, ThreadPool& pool);

// Does the same for the rows: o(y) = S H y with separate signs. The block size is the largest power of two that divides
// half of the rows, so no block is in two halves of a fused matrix. Matrices of queries, keys and values together,
// whose parts have different sizes, are left alone.
//
//   y = S H (H S W) x
void make_rows_incoherent(PassMatrix& matrix, uint64_t seed, ThreadPool& pool);

// Sets the sizes without values.
void preview_incoherent(PassMatrix& matrix);
void preview_rows_incoherent(PassMatrix& matrix);

}  // namespace millrace
