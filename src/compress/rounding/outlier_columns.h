// Columns of a matrix that are stored beside it in a wider format, as LLM.int8() and Atom have them. Pure functions.
#pragma once

#include <vector>

#include "compress/pass.h"

namespace millrace {

// Moves `columns` (ascending) of the matrix, whose input is unchanged, beside it. They and their inputs become zeros in
// what is left, so that no scale covers them. Nothing, if there are none. The number of columns is a multiple of the
// format's blocks.
void set_outlier_columns(PassMatrix& matrix, const std::vector<int32_t>& columns, const Format& format);

}  // namespace millrace
