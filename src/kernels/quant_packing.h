// Faster packing of quantized weights for sets of features, and products that need no packing, in separate files. They
// are not in families.h, which every kernel includes.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace {

// Adds packing functions for the kernels of quantized formats in the table.
void add_quant_packing_avx512(KernelTable& table);
// MatmulKernel::run_stored of Q8_0 and Q4_0.
void add_stored_products_avx512vnni(KernelTable& table);

}  // namespace millrace
