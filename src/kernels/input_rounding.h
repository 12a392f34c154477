// Rounds rows of inputs to the numbers of InputSegment (tensor/weight_parts.h), as quantizers of weights and
// activations need it. Results have the same bits on every instruction set, and for any batch.
//
//   segment     | int4, one scale for 128 columns | int4 ... | int8, one scale for all its columns |
//   value       = scale * number        scale = clip * max|x| of the group / largest number
//
// int8 products use the numbers as they are under two conditions: they are integers of at most 7 bits times one factor,
// and groups are whole groups of the kernel (32 columns; the row, for weights of fewer than 8 bits). The product is
// then that of the definition. Otherwise the rounded values are rounded once more, as for every quantized weight. This
// adds at most 1/254 of the largest value of 32 columns (weights of 8 bits), or about 1/254 of the row's largest value.
// Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"
#include "kernels/part_kernels.h"
#include "tensor/weight_parts.h"

namespace millrace {

// Returns true for integers of 1 to 7 bits and a sign, and for floats of 1 to 5 exponent bits and at most 3 mantissa
// bits. The group must have at least one column, and the clip must be above 0 and at most 1.
bool valid_segment(const InputSegment& segment);

// The largest number: 127 of int8, 7 of int4, 448 of E4M3 (whose last code is NaN), 6 of E2M1.
float largest_number(const InputSegment& segment);

// Rounds in place to the nearest number; if two are equally near, to the one with an even mantissa. A group with NaN or
// infinity becomes NaN; a group below 2^-100 becomes zeros.
void round_inputs(const PartKernels& kernels, std::span<const InputSegment> rounding, float* x);
void round_inputs(std::span<const InputSegment> rounding, float* x);  // by the reference kernels

// Rounds a row of `cols` values (nothing, if `rounding` is empty), and encodes it for products (kernels/activation.h).
// `x` may be overwritten.
void encode_rounded_row(const KernelTable& table, Activation kind, std::span<const InputSegment> rounding, int64_t cols,
                        float* x, uint8_t* destination);

}  // namespace millrace
