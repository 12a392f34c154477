// Layout of one row of activations, by kind. Rows are padded with zeros to a multiple of 64 values.
//
//   f32   float values[padded]
//   bf16  uint16 values[padded]
//   q8, q8_shift   a record of 56 bytes for each group of 32 values, so that a kernel follows one pointer per token;
//         one float follows the records, the row's unit:
//           int8 values[32]        value = unit * scale * q
//           int32 shift            q8_shift: 0 to 12, the smallest that holds the group; 12 for the group of the row's
//                                  largest value
//           float scale            q8_shift: 2^shift; q8: max|x| of the group / 127
//           float sum              scale * (sum of the group's q), for formats with a minimum
//           int32 start            -8 * (sum of the group's q): shifted, the initial value of a dot with levels that
//                                  have an offset
//           int32 negated_sums[2]  -(sum of each 16 q)
//         q8: unit = 1. q8_shift: unit = max|x| of the row / 127 / 2^12, and products need no scale: a dot is
//         shifted, and the sum of a row is multiplied by the unit once. A group 2^12 or more times smaller than the
//         row's largest value has fewer than 7 bits of precision.
// Rows are whole cache lines, and are not stored on disk. If the largest magnitude of a group (q8) or of the row
// (q8_shift) is below 2^-100, the group or row becomes zeros. A NaN or an infinity makes the scale or the unit NaN, so
// the outputs are NaN.
#pragma once

#include <cstdint>

#include "formats/format.h"

namespace millrace {

// Always inlined, because files with instruction-set flags also use these functions.
inline constexpr int64_t kActivationPad = 64;
inline constexpr int64_t kActivationGroup = 32;

[[gnu::always_inline]] constexpr int64_t padded_values(int64_t n) {
  return (n + kActivationPad - 1) / kActivationPad * kActivationPad;
}
[[gnu::always_inline]] constexpr int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

inline constexpr int64_t kQ8ShiftAt = 32;  // byte offsets in a record
inline constexpr int64_t kQ8ScaleAt = 36;
inline constexpr int64_t kQ8SumAt = 40;
inline constexpr int64_t kQ8StartAt = 44;
inline constexpr int64_t kQ8SumsAt = 48;
inline constexpr int64_t kQ8GroupBytes = 56;
inline constexpr int kQ8StartBits = 3;   // log2 of the factor 8 in `start`
inline constexpr int kQ8MostShift = 12;  // the largest int8 dot, 32 * 128 * 127, times 2^12 fits in an int32

// Returns the offset of the unit in a row of n values.
[[gnu::always_inline]] constexpr int64_t q8_unit_at(int64_t n) {
  return padded_values(n) / kActivationGroup * kQ8GroupBytes;
}

// Returns the row stride, an odd number of cache lines. A tile of tokens reads the same column of many rows at once; if
// the stride were a multiple of 4096 bytes, they would all map to the same few lines of L1.
[[gnu::always_inline]] constexpr int64_t activation_row_bytes(Activation kind, int64_t n) {
  int64_t bytes = 0;
  switch (kind) {
    case Activation::f32: bytes = padded_values(n) * 4; break;
    case Activation::bf16: bytes = align64(padded_values(n) * 2); break;
    case Activation::q8:
    case Activation::q8_shift: bytes = align64(q8_unit_at(n) + static_cast<int64_t>(sizeof(float))); break;
  }
  return bytes | 64;
}

}  // namespace millrace
