// Faster packing of quantized weights for sets of features, in files of their own. Not in families.h, which every
// kernel includes.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace {

// Of the kernels of quantized formats that the table has.
void add_quant_packing_avx512(KernelTable& table);

}  // namespace millrace
