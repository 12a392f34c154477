// Hadamard matrices whose order is no power of two: square, of +1 and -1, with orthogonal rows. They are those of
// QuIP#'s checkpoints (Tseng et al., 2024), which originate in Sloane's library. By their constructions:
//
//   12, 20, 60, 108, 140      Paley's first, with the squares modulo the prime (order - 1)
//   28, 36                    Paley's second, modulo order / 2 - 1
//   52, 116, 124, 156, 172    Williamson's, of four symmetric circulant matrices
//
// Frozen: published files are stored for exactly these signs. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

// [order, order]; empty: none of the above.
const std::vector<float>& hadamard_matrix(int64_t order);

// Returns the order by which QuIP# divides n so that a power of two remains. 1: n itself is a power of two. 0: there is
// no such order.
int64_t outer_hadamard_order(int64_t n);

}  // namespace millrace
