// Rounds rows of inputs to the numbers of InputSegment (tensor/weight_parts.h), for quantizers of weights and
// activations. Results have the same bits on every instruction set and for every batch.
//
//   segment     | int4, one scale for 128 columns | int4 ... | int8, one scale for all its columns |
//   value       = scale * number        scale = clip * max|x| of the group / largest number
//
// int8 products use the numbers without further rounding under two conditions: the numbers are integers of at most 7
// bits times one factor, and groups are whole groups of the kernel (32 columns; the row, for weights of fewer than 8
// bits). The product is then exactly the defined one. Otherwise the rounded values are rounded again, as for every
// quantized weight. This adds at most 1/254 of the largest value of 32 columns (weights of 8 bits), or about 1/254 of
// the row's largest value. Thread-safe.
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

// Returns the largest number: 127 for int8, 7 for int4, 448 for E4M3 (whose last code is NaN), 6 for E2M1.
float largest_number(const InputSegment& segment);

// Rounds in place to the nearest number; if two are equally near, to the one with an even mantissa. A group with NaN or
// infinity becomes NaN; a group below 2^-100 becomes zeros.
void round_inputs(const PartKernels& kernels, std::span<const InputSegment> rounding, float* x);
void round_inputs(std::span<const InputSegment> rounding, float* x);  // by the reference kernels

// Rounds a row of `cols` values (unless `rounding` is empty), and encodes it for products (kernels/activation.h). May
// overwrite `x`.
void encode_rounded_row(const KernelTable& table, Activation kind, std::span<const InputSegment> rounding, int64_t cols,
                        float* x, uint8_t* destination);

}  // namespace millrace
