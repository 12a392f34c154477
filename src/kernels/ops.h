// Registration of every kernel that is not a matmul: attention, norms, RoPE, softmax, activation functions, elementwise
// arithmetic and row codecs. There is one file for each family and instruction set. make_kernel_table() calls the
// add_ops_* of each level and the add_attention_* of each feature.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace {

using AttentionFunction = void (*)(const AttentionArgs& args);
using EncodeFunction = void (*)(const float* source, uint8_t* destination, int64_t n);
using DecodeFunction = void (*)(const uint8_t* source, float* destination, int64_t n);

// For the files of an instruction set: registration by format name, and the reference attention for unusual shapes.
// These files must not call inline functions of other headers, because those would be compiled with the file's flags.
void set_attention_named(KernelTable& table, const char* format, AttentionFunction run, int64_t bf16_head_dim = 0);
void set_mixed_attention_named(KernelTable& table, const char* keys, const char* values, AttentionFunction run,
                               int64_t bf16_head_dim = 0);
// `encode`: null: the format's own encoder is used.
void set_codec_named(KernelTable& table, const char* format, EncodeFunction encode, DecodeFunction decode);
void attend_reference(const char* format, const AttentionArgs& args) noexcept;

void add_ops_ref(KernelTable& table);
void add_ops_avx2(KernelTable& table);    // only on x86-64
void add_ops_avx512(KernelTable& table);  // only on x86-64

void add_ops_neon(KernelTable& table);  // only on Arm

void add_attention_neon(KernelTable& table);
void add_attention_avx2(KernelTable& table);
void add_attention_avx512(KernelTable& table);
void add_attention_avx512bf16(KernelTable& table);
void add_attention_amxbf16(KernelTable& table);
void add_attention_levels_avx512vnnibf16(KernelTable& table);
void add_attention_rows_avx512vnnibf16(KernelTable& table);  // needs both features

// Each function is defined in one file and called by add_ops_*.
void add_attention_ref(KernelTable& table);
void add_norm_ref(KernelTable& table);
void add_rope_ref(KernelTable& table);
void add_softmax_ref(KernelTable& table);
void add_exp_sum_ref(KernelTable& table);
void add_select_ref(KernelTable& table);
void add_activation_functions_ref(KernelTable& table);
void add_elementwise_ref(KernelTable& table);
void add_row_codec_ref(KernelTable& table);
void add_selective_scan_ref(KernelTable& table);
void add_affine_rows_ref(KernelTable& table);

void add_norm_avx2(KernelTable& table);
void add_rope_avx2(KernelTable& table);
void add_softmax_avx2(KernelTable& table);
void add_exp_sum_avx2(KernelTable& table);
void add_activation_functions_avx2(KernelTable& table);
void add_elementwise_avx2(KernelTable& table);
void add_row_codec_avx2(KernelTable& table);
void add_selective_scan_avx2(KernelTable& table);
void add_affine_rows_avx2(KernelTable& table);

void add_norm_avx512(KernelTable& table);
void add_rope_avx512(KernelTable& table);
void add_softmax_avx512(KernelTable& table);
void add_exp_sum_avx512(KernelTable& table);
void add_select_avx512(KernelTable& table);
void add_activation_functions_avx512(KernelTable& table);
void add_elementwise_avx512(KernelTable& table);
void add_row_codec_avx512(KernelTable& table);
void add_selective_scan_avx512(KernelTable& table);
void add_affine_rows_avx512(KernelTable& table);

}  // namespace millrace
