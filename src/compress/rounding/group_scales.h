// Plain rounding to a block format where all blocks of a larger group of columns, or of a whole row, have the same
// scales, as in papers with coarser groups. Pure functions.
#pragma once

#include <cstdint>

#include "compress/pass.h"

namespace millrace {

// Returns true if a block of the format has 32 values and one scale, with or without a minimum.
bool can_share_scales(const Format& format);

// Fills `matrix.encoded`. `group`: columns, a multiple of 32; 0: the whole row. The scales of a group are those that
// the format's plain rounding chooses for a block with the group's smallest and largest weight.
void round_in_groups(PassMatrix& matrix, int64_t group, ThreadPool& pool);

}  // namespace millrace
