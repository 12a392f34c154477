// Checks that packed quantized rows were finite before packing. It reads only their scales, which are contiguous.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"

namespace millrace {

// Returns the index of a kernel's format in kQuantShapes if its packed rows have the stored scales; otherwise -1.
int packed_scales_source(const MatmulKernel& kernel);

// Returns true if the scales and minimums of the first `rows` rows at `packed` are finite.
bool packed_scales_finite(int source, const uint8_t* packed, int64_t rows, int64_t cols);

}  // namespace millrace
