// Columns of a matrix that are stored separately in a wider format, as in LLM.int8() and Atom. Pure functions.
#pragma once

#include <vector>

#include "compress/pass.h"

namespace millrace {

// Stores `columns` (ascending) of the matrix, whose input is unchanged, separately. In the remaining matrix they and
// their inputs become zeros, so no scale covers them. Does nothing if there are none. The number of columns is a
// multiple of the format's blocks.
void set_outlier_columns(PassMatrix& matrix, const std::vector<int32_t>& columns, const Format& format);

}  // namespace millrace
