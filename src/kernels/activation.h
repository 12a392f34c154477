// Layout of one row of activations, by kind. Rows are padded with zeros to a multiple of 64 values.
//
//   f32   float values[padded]
//   bf16  uint16 values[padded]
//   q8    int8 values[padded]            group g covers values [32 g, 32 g + 32)
//         float scales[padded / 32]      value = scale * q; scale = max|x| / 127
//         float offsets[padded / 32]     scale * (sum of the group's q), for formats with a minimum
//         int16 sums[padded / 16]        sum of each 16 q, for formats with an offset
// Each part starts at a multiple of 64 bytes. Not stored on disk. A q8 group whose largest magnitude is below
// 2^-100 becomes zeros; one that holds a NaN or an infinity gets a NaN scale, so that it shows in the output.
#pragma once

#include <cstdint>

#include "formats/format.h"

namespace millrace {

// The functions are always inlined: files with instruction-set flags use them too.
inline constexpr int64_t kActivationPad = 64;
inline constexpr int64_t kActivationGroup = 32;

[[gnu::always_inline]] constexpr int64_t padded_values(int64_t n) { return (n + kActivationPad - 1) / kActivationPad * kActivationPad; }
[[gnu::always_inline]] constexpr int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

[[gnu::always_inline]] constexpr int64_t q8_scales_offset(int64_t n) { return padded_values(n); }
[[gnu::always_inline]] constexpr int64_t q8_offsets_offset(int64_t n) {
  return q8_scales_offset(n) + align64(padded_values(n) / kActivationGroup * 4);
}
[[gnu::always_inline]] constexpr int64_t q8_sums_offset(int64_t n) {
  return q8_offsets_offset(n) + align64(padded_values(n) / kActivationGroup * 4);
}

// From one row to the next: an odd number of cache lines. A tile of tokens reads the same column of many rows at once, and
// rows a multiple of 4096 bytes apart would all fall into the same few lines of L1.
[[gnu::always_inline]] constexpr int64_t activation_row_bytes(Activation kind, int64_t n) {
  int64_t bytes = 0;
  switch (kind) {
    case Activation::f32: bytes = padded_values(n) * 4; break;
    case Activation::bf16: bytes = align64(padded_values(n) * 2); break;
    case Activation::q8: bytes = q8_sums_offset(n) + align64(padded_values(n) / 16 * 2); break;
  }
  return bytes | 64;
}

}  // namespace millrace
