// The kernels of weights with parts (tensor/weight_parts.h): inputs that are changed and rounded, and sparse matrices.
// With every instruction set they compute the bits of the reference (ref/part_kernels.cc). They have their own table,
// which follows the rules of KernelTable.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace millrace {

// Numbers that a group of inputs is rounded to, each times the group's scale. Integers are floats of which all are
// subnormal.
struct RoundedNumbers {
  int least_exponent = 0;  // exponent of the smallest normal number, as a power of two; at least -16
  int mantissa_bits = 0;
  float largest = 0;
  float clip = 1;    // part of the group's largest magnitude that the largest number represents
  float factor = 1;  // a power of two that makes the numbers integers
};

// Rows of blocks, mixed by a matrix of +1 and -1: out[a] = scale * sum over b of sign(a, b) * x[b], in ascending order
// of b from zero, each sum rounded; sign(a, b) = matrix[a * row_step + b * column_step].
struct MixedBlocks {
  const float* x = nullptr;  // [count][block]
  float* out = nullptr;      // outputs, likewise; not x
  int64_t block = 0;
  int64_t count = 0;
  const float* matrix = nullptr;
  int64_t row_step = 0, column_step = 0;
  float scale = 1;
};

// Inputs of a tile of tokens, column by column, so that tokens are the lanes of vectors.
inline constexpr int64_t kTurnedTokens = 64;  // rows of a whole tile
inline constexpr int64_t kTurnedUnit = 16;
// Floats from one column to the next.
[[gnu::always_inline]] constexpr int64_t turned_width(int64_t tokens) {
  return (tokens + kTurnedUnit - 1) / kTurnedUnit * kTurnedUnit;
}

// y[t][r] += the sum of values[i] * x[columns[i]] of row r, from zero in order; products and sums are rounded.
struct SparseRows {
  const int64_t* row_begin = nullptr;  // begins of the rows, from the first row on
  const int32_t* columns = nullptr;
  const float* values = nullptr;
  int64_t rows = 0;
  const float* turned = nullptr;  // [cols][turned_width(tokens)]
  int64_t tokens = 0;             // 1 to kTurnedTokens
  float* y = nullptr;             // [tokens][y_stride]
  int64_t y_stride = 0;
};

struct PartKernels {
  // A group of inputs becomes numbers times their scale; NaN, if it holds one or an infinity; zeros below 2^-100.
  void (*round_group)(const RoundedNumbers& numbers, float* x, int64_t n) = nullptr;
  // Variant that writes int8 records (kernels/activation.h): levels are numbers * factor. Returns the scale of the
  // levels, which is also the scale of the records, unless `unit_scale` sets that to 1.
  float (*encode_group)(const RoundedNumbers& numbers, const float* x, int64_t n, bool unit_scale,
                        uint8_t* records) = nullptr;
  // out = (x - shift) * scale; null: none. out may be x.
  void (*shift_scale)(const float* x, const float* shift, const float* scale, int64_t n, float* out) = nullptr;
  // Each block of n values times a Hadamard matrix (Sylvester's) and 1 / sqrt(block), in place; block is a power of two
  // that divides n.
  void (*hadamard)(float* x, int64_t n, int64_t block) = nullptr;
  void (*mix_blocks)(const MixedBlocks& blocks) = nullptr;
  // x [tokens, x_stride] to `turned` [cols][turned_width(tokens)]; tokens beyond are some values.
  void (*turn_tokens)(const float* x, int64_t x_stride, int64_t tokens, int64_t cols, float* turned) = nullptr;
  void (*add_sparse)(const SparseRows& rows) = nullptr;
};

// The best for the features in `isa`.
const PartKernels& part_kernels(Isa isa);

// Functions of one file each, for part_kernels().
PartKernels part_kernels_ref();
PartKernels part_kernels_avx2();
PartKernels part_kernels_avx512();
PartKernels part_kernels_neon();

}  // namespace millrace
