// Sorting of many candidates: radix sort by logit (least significant digit first, 3 x 11 bits; Knuth, The Art of
// Computer Programming, vol. 3, section 5.2.5), equal logits then by token id.
#pragma once

#include <span>

#include "sampling/row.h"

namespace millrace {

inline constexpr size_t kRadixFrom = 512;  // shorter lists are sorted by comparisons

// Sorts as std::sort with better() does. `spare`: as many candidates, overwritten. No logit is NaN.
void radix_sort(std::span<Candidate> list, std::span<Candidate> spare);

}  // namespace millrace
