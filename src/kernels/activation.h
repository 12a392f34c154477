// Layout of one row of activations, by kind. Rows are padded with zeros to a multiple of 64 values.
//
//   f32   float values[padded]
//   bf16  uint16 values[padded]
//   q8    a record of 48 bytes for each group of 32 values, so that a kernel follows one pointer a token:
//           int8 values[32]        value = scale * q; scale = max|x| / 127
//           float scale
//           float offset           scale * (sum of the group's q), for formats with a minimum
//           int32 negated_sums[2]  -(sum of each 16 q): shifted, the start of a dot with levels that have an offset
// Rows are whole cache lines. Not stored on disk. A q8 group whose largest magnitude is below 2^-100 becomes zeros; one
// that holds a NaN or an infinity gets a NaN scale, so that it shows in the output.
#pragma once

#include <cstdint>

#include "formats/format.h"

namespace millrace {

// The functions are always inlined: files with instruction-set flags use them too.
inline constexpr int64_t kActivationPad = 64;
inline constexpr int64_t kActivationGroup = 32;

[[gnu::always_inline]] constexpr int64_t padded_values(int64_t n) { return (n + kActivationPad - 1) / kActivationPad * kActivationPad; }
[[gnu::always_inline]] constexpr int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

inline constexpr int64_t kQ8ScaleAt = 32;  // bytes into a record
inline constexpr int64_t kQ8OffsetAt = 36;
inline constexpr int64_t kQ8SumsAt = 40;
inline constexpr int64_t kQ8GroupBytes = 48;

// From one row to the next: an odd number of cache lines. A tile of tokens reads the same column of many rows at once, and
// rows a multiple of 4096 bytes apart would all fall into the same few lines of L1.
[[gnu::always_inline]] constexpr int64_t activation_row_bytes(Activation kind, int64_t n) {
  int64_t bytes = 0;
  switch (kind) {
    case Activation::f32: bytes = padded_values(n) * 4; break;
    case Activation::bf16: bytes = align64(padded_values(n) * 2); break;
    case Activation::q8: bytes = align64(padded_values(n) / kActivationGroup * kQ8GroupBytes); break;
  }
  return bytes | 64;
}

}  // namespace millrace
