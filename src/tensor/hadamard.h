// Hadamard matrices whose order is not a power of two. They are square, have values +1 and -1, and orthogonal rows.
// QuIP#'s checkpoints (Tseng et al., 2024) use these matrices, which are published in Sloane's library. Orders and
// constructions:
//
//   12, 20, 60, 108, 140      Paley's first, with the squares modulo the prime (order - 1)
//   28, 36                    Paley's second, modulo order / 2 - 1
//   52, 116, 124, 156, 172    Williamson's, of four symmetric circulant matrices
//
// Never change the signs: published files depend on them. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

// Returns the matrix [order, order]; empty if the order is not listed above.
const std::vector<float>& hadamard_matrix(int64_t order);

// Returns the order by which QuIP# divides n so that a power of two remains. 1: n itself is a power of two. 0: there is
// no such order.
int64_t outer_hadamard_order(int64_t n);

}  // namespace millrace
