// Stores some columns of a matrix separately in a wider format, as in LLM.int8() and Atom. Pure functions.
#pragma once

#include <vector>

#include "compress/pass.h"

namespace millrace {

// Moves `columns` (ascending) of the matrix to its separately stored columns. In the matrix, these columns and their
// inputs become zeros, so they have no effect on the scales. The matrix must have no input change. The number of
// columns must be a multiple of the format's block size. Does nothing without columns.
void set_outlier_columns(PassMatrix& matrix, const std::vector<int32_t>& columns, const Format& format);

}  // namespace millrace
