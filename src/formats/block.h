// Shared by the block formats: little-endian loads and stores, f16 scales, rounding, and packed bits. Pure functions.
//
// Blocks have GGUF's layouts on disk, which are frozen and little-endian.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensor/half.h"

namespace millrace {

inline constexpr float kLargestF16 = 65504.0f;
// Formats with an f16 scale clamp their input to this. It is larger than any value that they can represent, and small
// enough that differences and squares are finite.
inline constexpr float kLargestBlockValue = 0x1p30f;

inline uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
inline void store_u16(uint8_t* p, uint16_t bits) {
  p[0] = static_cast<uint8_t>(bits);
  p[1] = static_cast<uint8_t>(bits >> 8);
}
inline uint32_t load_u32(const uint8_t* p) { return load_u16(p) | static_cast<uint32_t>(load_u16(p + 2)) << 16; }
inline void store_u32(uint8_t* p, uint32_t bits) {
  store_u16(p, static_cast<uint16_t>(bits));
  store_u16(p + 2, static_cast<uint16_t>(bits >> 16));
}

inline float load_f16(const uint8_t* p) { return f16_to_f32(load_u16(p)); }
inline bool f16_is_finite(const uint8_t* p) { return (load_u16(p) & 0x7c00u) != 0x7c00u; }

// Returns x clamped to +-limit; 0 for NaN.
inline float clamp_finite(float x, float limit) { return x != x ? 0.0f : std::clamp(x, -limit, limit); }

// Returns the nearest integer, ties to even, for |x| < 2^22. It makes no library call, so that loops vectorize.
inline int round_to_int(float x) {
  constexpr float kMagic = 0x1.8p23f;
  return static_cast<int>((x + kMagic) - kMagic);
}
inline int round_clamped(float x, int low, int high) {
  return round_to_int(std::clamp(x, static_cast<float>(low), static_cast<float>(high)));
}

// A scale as f16 bits, and the factor by which values are multiplied before rounding. It is the inverse of the exact
// scale if f16 represents the scale with its full 11 bits. A subnormal or clamped f16 is too coarse, so the inverse of
// the stored scale is used.
struct F16Scale {
  uint16_t bits = 0;
  float stored = 0;
  float inverse = 0;  // factor before rounding; 0 for a zero scale
};
inline F16Scale make_f16_scale(float scale) {
  F16Scale out;
  out.bits = f32_to_f16(clamp_finite(scale, kLargestF16));
  out.stored = f16_to_f32(out.bits);
  float magnitude = std::fabs(scale);
  float used = magnitude >= 0x1p-14f && magnitude <= kLargestF16 ? scale : out.stored;
  out.inverse = used != 0 ? 1.0f / used : 0.0f;
  return out;
}

// Calls block(source, destination) for each block of a row.
template <int kValues, int kBytes, typename Block>
void decode_blocks(const uint8_t* source, float* destination, int64_t n, Block block) {
  for (int64_t i = 0; i + kValues <= n; i += kValues, source += kBytes, destination += kValues) {
    block(source, destination);
  }
}

// Variant for encoding. block() receives finite values within +-limit.
template <int kValues, int kBytes, typename Block>
void encode_blocks(const float* source, uint8_t* destination, int64_t n, Block block,
                   float limit = kLargestBlockValue) {
  float clean[kValues];
  for (int64_t i = 0; i + kValues <= n; i += kValues, source += kValues, destination += kBytes) {
    for (int j = 0; j < kValues; ++j) clean[j] = clamp_finite(source[j], limit);
    block(clean, destination);
  }
}

// Returns the index of the first block for which bad(block) is true; -1 if there is none. This is often the first read
// of a mapped file, so it prefetches into L2 to have enough reads from memory in flight.
template <int kValues, int kBytes, typename Bad>
int64_t find_block(const uint8_t* source, int64_t n, Bad bad) {
  constexpr int kAhead = 4096;  // bytes
  int64_t blocks = n / kValues;
  for (int64_t b = 0; b < blocks; ++b, source += kBytes) {
    for (int line = 0; line < kBytes; line += 64) __builtin_prefetch(source + kAhead + line, 0, 2);
    if (bad(source)) return b;
  }
  return -1;
}

// Variant for plain values, which are not finite if all bits of `mask` are set. It scans runs of values without an
// early exit, so that the loop vectorizes. The byte order of files must be the host's.
template <typename Bits>
int64_t find_value(const uint8_t* source, int64_t n, Bits mask) {
  constexpr int64_t kRun = 256;
  auto is_bad = [&](int64_t i) {
    Bits bits;
    std::memcpy(&bits, source + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    return static_cast<Bits>((bits & mask) == mask ? 1 : 0);
  };
  int64_t i = 0;
  for (; i + kRun <= n; i += kRun) {
    Bits bad = 0;
    for (int64_t j = 0; j < kRun; ++j) bad = static_cast<Bits>(bad | is_bad(i + j));
    if (bad) break;
  }
  for (; i < n; ++i) {
    if (is_bad(i)) return i;
  }
  return -1;
}

// Replaces `bits` bits of a byte, beginning with bit `shift`.
inline void put_bits(uint8_t& byte, int shift, int bits, int value) {
  const int mask = (1 << bits) - 1;
  byte = static_cast<uint8_t>((byte & ~(mask << shift)) | (value & mask) << shift);
}
// Stores 4-bit value j of 32 in 16 bytes: values 0 to 15 in the low halves, the others in the high halves.
inline void put_nibble(uint8_t* packed, int j, int value) { put_bits(packed[j % 16], j / 16 * 4, 4, value); }

// Returns the value with the largest magnitude, with its sign; the first one in a tie.
inline float largest_signed(const float* x, int n) {
  float best = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(best)) best = x[i];
  }
  return best;
}

}  // namespace millrace
