#pragma once

#include "kernels/kernel_table.h"

namespace millrace {

// Of the kernels of quantized formats that the table has.
void add_quant_packing_avx512(KernelTable& table);

}  // namespace millrace
