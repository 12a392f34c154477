// The functions that fill a KernelTable, one for each kernel family and set of CPU features. Each is defined in a
// separate file, which is compiled with the flags of its features. make_kernel_table() calls them in the order from
// fewer features to more.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace {

// Matmul kernels and activation rounding (ref/, x86/ and arm/ matmul*, activation*).
void add_activation_ref(KernelTable& table);
void add_matmul_float_ref(KernelTable& table);
void add_matmul_quant_ref(KernelTable& table);
void add_matmul_codebook_ref(KernelTable& table);
void add_activation_avx2(KernelTable& table);
void add_matmul_float_avx2(KernelTable& table);
void add_matmul_quant_avx2(KernelTable& table);
void add_matmul_quant_avxvnni(KernelTable& table);
void add_matmul_quant_avxvnniint8(KernelTable& table);
void add_matmul_float_avx512(KernelTable& table);
void add_matmul_f8_avx512vbmi(KernelTable& table);
void add_matmul_bf16_avx512bf16(KernelTable& table);
void add_matmul_quant_avx512vnni(KernelTable& table);
void add_matmul_codewords_avx512vbmi(KernelTable& table);
void add_matmul_quant_amxint8(KernelTable& table);
void add_matmul_quant_amxbf16(KernelTable& table);
void add_matmul_bf16_amxbf16(KernelTable& table);
void add_activation_neon(KernelTable& table);
void add_matmul_float_neon(KernelTable& table);
void add_matmul_quant_neon(KernelTable& table);
void add_matmul_quant_dotprod(KernelTable& table);
void add_matmul_quant_i8mm(KernelTable& table);
void add_matmul_bf16_armbf16(KernelTable& table);

// Returns the kernel of a quantized format for few tokens, with which tiles are not faster. `source`: the format's
// index in kQuantShapes.
using QuantRun = void (*)(const MatmulArgs& args);
QuantRun quant_run_avx512vnni(int source);
QuantRun table16_run_avx512vnni();    // for tables of at most 16 weights
QuantRun codewords_run_avx512vnni();  // for words of eight weights
QuantRun codewords_run_avx512vbmi();  // needs VNNI too

}  // namespace millrace
