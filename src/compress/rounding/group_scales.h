// Plain rounding to a block format in which the blocks of a larger group of columns, or of a whole row, share their
// scales, as in papers with coarser groups. Pure functions.
#pragma once

#include <cstdint>

#include "compress/pass.h"

namespace millrace {

// Returns true if blocks of the format are 32 values under one scale, with or without a minimum.
bool can_share_scales(const Format& format);

// Rounds row after row to `encoded`. `group` is a multiple of 32 columns; 0: the whole row. A group has the scales that
// the format's own rounding gives a block with the group's smallest and largest weight.
void round_in_groups(PassMatrix& matrix, int64_t group, ThreadPool& pool);

}  // namespace millrace
