// Whether packed quantized rows came from finite ones: only their scales are looked at, which are contiguous.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"

namespace millrace {

// The index of a kernel's format in kQuantShapes, if its packed rows have the stored scales; else -1.
int packed_scales_source(const MatmulKernel& kernel);

// Whether the scales and minimums of the first `rows` rows at `packed` are finite.
bool packed_scales_finite(int source, const uint8_t* packed, int64_t rows, int64_t cols);

}  // namespace millrace
