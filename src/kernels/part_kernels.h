// The kernels of weights with parts (tensor/weight_parts.h): inputs that are changed and rounded, and sparse matrices.
// Every instruction set gives the same bits as the reference (ref/part_kernels.cc). PartKernels is a separate table
// that follows the rules of KernelTable.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace millrace {

// The numbers to which a group of inputs is rounded; each is multiplied by the group's scale. Integers are floats whose
// numbers are all subnormal.
struct RoundedNumbers {
  int least_exponent = 0;  // exponent (base 2) of the smallest normal number; at least -16
  int mantissa_bits = 0;
  float largest = 0;
  float clip = 1;    // fraction of the group's largest magnitude that the largest number represents
  float factor = 1;  // a power of two by which numbers are multiplied to become integers
};

// Arguments for mixing blocks by a matrix of +1 and -1: out[a] = scale * sum over b of sign(a, b) * x[b], where sign(a,
// b) = matrix[a * row_step + b * column_step]. Sums begin with zero, have ascending b, and are rounded after each term.
struct MixedBlocks {
  const float* x = nullptr;  // [count][block]
  float* out = nullptr;      // [count][block]; must not be x
  int64_t block = 0;
  int64_t count = 0;
  const float* matrix = nullptr;
  int64_t row_step = 0, column_step = 0;
  float scale = 1;
};

// Transposed inputs of a tile of tokens, so that tokens are the lanes of vectors.
inline constexpr int64_t kTurnedTokens = 64;  // maximum tokens of a tile
inline constexpr int64_t kTurnedUnit = 16;
// Returns the floats from one column to the next.
[[gnu::always_inline]] constexpr int64_t turned_width(int64_t tokens) {
  return (tokens + kTurnedUnit - 1) / kTurnedUnit * kTurnedUnit;
}

// Adds to y[t][r] the sum of values[i] * x[t][columns[i]] over row r. The sum begins with zero and is in order;
// products and sums are rounded.
struct SparseRows {
  const int64_t* row_begin = nullptr;  // index of each row's first entry, then the end of the last row
  const int32_t* columns = nullptr;
  const float* values = nullptr;
  int64_t rows = 0;
  const float* turned = nullptr;  // [cols][turned_width(tokens)]
  int64_t tokens = 0;             // 1 to kTurnedTokens
  float* y = nullptr;             // [tokens][y_stride]
  int64_t y_stride = 0;
};

struct PartKernels {
  // Rounds a group of inputs to numbers times their scale. If a value is NaN or infinite, all become NaN. If all
  // magnitudes are below 2^-100, they become 0.
  void (*round_group)(const RoundedNumbers& numbers, float* x, int64_t n) = nullptr;
  // Variant that writes int8 records (kernels/activation.h). Levels are numbers * factor. Returns the scale of the
  // levels. The records have this scale, or, if `unit_scale`, the scale 1.
  float (*encode_group)(const RoundedNumbers& numbers, const float* x, int64_t n, bool unit_scale,
                        uint8_t* records) = nullptr;
  // Computes out = (x - shift) * scale. shift and scale may be null. out may be x.
  void (*shift_scale)(const float* x, const float* shift, const float* scale, int64_t n, float* out) = nullptr;
  // Multiplies each block of the n values by Sylvester's Hadamard matrix and 1 / sqrt(block), in place. `block`: a
  // power of two that divides n.
  void (*hadamard)(float* x, int64_t n, int64_t block) = nullptr;
  void (*mix_blocks)(const MixedBlocks& blocks) = nullptr;
  // Transposes x [tokens, x_stride] to `turned` [cols][turned_width(tokens)]. Values beyond `tokens` are arbitrary.
  void (*turn_tokens)(const float* x, int64_t x_stride, int64_t tokens, int64_t cols, float* turned) = nullptr;
  void (*add_sparse)(const SparseRows& rows) = nullptr;
};

// Returns the best kernels for the features in `isa`.
const PartKernels& part_kernels(Isa isa);

// The kernels of each file, for part_kernels().
PartKernels part_kernels_ref();
PartKernels part_kernels_avx2();
PartKernels part_kernels_avx512();
PartKernels part_kernels_neon();

}  // namespace millrace
