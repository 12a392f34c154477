// Faster packing of quantized weights, and products that need no packing, for some sets of CPU features. They are not
// declared in families.h, because every kernel includes that header.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace {

// Adds packing functions for the kernels of quantized formats in the table.
void add_quant_packing_avx512(KernelTable& table);
// Sets MatmulKernel::run_stored of Q8_0 and Q4_0.
void add_stored_products_avx512vnni(KernelTable& table);

}  // namespace millrace
