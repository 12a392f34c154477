// Sorts many candidates by logit, equal logits by token id. Radix sort, least significant digit first, with 3 digits of
// 11 bits (Knuth, The Art of Computer Programming, vol. 3, section 5.2.5).
#pragma once

#include <span>

#include "sampling/row.h"

namespace millrace {

inline constexpr size_t kRadixFrom = 512;  // shorter lists are sorted by comparisons

// Sorts `list` in the order of std::sort with better(). `spare`: scratch memory of the size of `list`. No logit may be
// NaN.
void radix_sort(std::span<Candidate> list, std::span<Candidate> spare);

}  // namespace millrace
