// Decodes rows of 4 and 5 bits (KvNibbles) for the attention kernel on AVX2. Levels are bytes, 32 at a time. Unpacking
// makes them floats: a byte becomes the low bits of the upper half of a float from 128 to 256. Include after
// simd_avx2.h.
#pragma once

#include <cstring>

#include "kernels/x86/byte_columns_avx2.h"

namespace millrace {
namespace {

struct NibbleBlocks {
  // Decodes the 32 values of a block.
  template <typename Kv>
  static void decode(const uint8_t* block, float* out) {
    const __m256 scale = Simd::set(Simd::f16(block)), zero = zero_of<Kv>(scale, Kv::minimum_of(block));
    __m256 values[4];
    widen(levels_of_row<Kv>(block), values);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) Simd::store(out + v * Simd::kLanes, value<Kv>(values[v], scale, zero));
  }

  // Decodes the block at offset `at` of each of 32 rows, and writes out[d][row].
  template <typename Kv>
  static void transpose(const uint8_t* const* rows, int64_t at, float* out) {
    alignas(32) uint8_t scales[64], minima[64];
    alignas(32) uint32_t fifths[32];
    for (int r = 0; r < 32; ++r) {
      std::memcpy(scales + 2 * r, rows[r] + at, 2);
      if constexpr (Kv::kHasMinimum) std::memcpy(minima + 2 * r, rows[r] + at + 2, 2);
      if constexpr (Kv::kHasFifth) std::memcpy(fifths + r, rows[r] + at + Kv::kFifthAt, 4);
    }
    __m256i column[16], fifth[4];
    transpose_bytes([&](int64_t r) { return rows[r] + at + Kv::kLevelsAt; }, column);
    if constexpr (Kv::kHasFifth) transpose_fifths(fifths, fifth);
    __m256 scale[4], zero[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      scale[v] = Simd::load_f16(scales + 16 * v);
      zero[v] = zero_of<Kv>(scale[v], Kv::kHasMinimum ? Simd::load_f16(minima + 16 * v) : Simd::zero());
    }
#pragma GCC unroll 32
    for (int d = 0; d < 32; ++d) {
      const __m256i bits = d < 16 ? column[d] : _mm256_srli_epi16(column[d - 16], 4);
      __m256i level = _mm256_and_si256(bits, _mm256_set1_epi8(15));
      if constexpr (Kv::kHasFifth) level = _mm256_or_si256(level, fifth_of_dim(fifth[d / 8], d % 8));
      __m256 values[4];
      widen(level, values);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) Simd::store(out + d * 32 + v * Simd::kLanes, value<Kv>(values[v], scale[v], zero[v]));
    }
  }

 private:
  static constexpr float kBase = 128;  // widen() returns a level plus this

  // Returns the term that is added to a level of widen() times the scale. If the format has no minimum, it is zero.
  template <typename Kv>
  static __m256 zero_of(__m256 scale, __m256 minimum) {
    return Kv::kHasMinimum ? minimum : Simd::mul(scale, Simd::set(-(kBase + Kv::kCentre)));
  }
  template <typename Kv>
  static __m256 value(__m256 level, __m256 scale, __m256 zero) {
    return Simd::fma(Kv::kHasMinimum ? Simd::sub(level, Simd::set(kBase)) : level, scale, zero);
  }

  // Converts bytes to floats. Values 0-3, 8-11, 16-19 and 24-27 must be in the lower half, the others in the upper
  // half.
  static void widen(__m256i levels, __m256* out) {
    const __m256i exponent = _mm256_set1_epi8(0x43), none = _mm256_setzero_si256();
    const __m256i low = _mm256_unpacklo_epi8(levels, exponent), high = _mm256_unpackhi_epi8(levels, exponent);
    out[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, low));
    out[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, low));
    out[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, high));
    out[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, high));
  }

  template <typename Kv>
  static __m256i levels_of_row(const uint8_t* block) {
    const __m256i order = _mm256_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11,  //
                                           4, 5, 6, 7, 12, 13, 14, 15, 4, 5, 6, 7, 12, 13, 14, 15);
    const auto* nibbles = reinterpret_cast<const __m128i*>(block + Kv::kLevelsAt);
    const __m256i both = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(nibbles)), order);
    const __m256i level =
        _mm256_and_si256(_mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 4, 0, 4)), _mm256_set1_epi8(15));
    if constexpr (!Kv::kHasFifth) return level;
    int word;
    std::memcpy(&word, block + Kv::kFifthAt, 4);
    const __m256i byte = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,  //
                                          0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m256i bit =
        _mm256_blend_epi32(_mm256_set1_epi32(0x08040201), _mm256_set1_epi32(static_cast<int>(0x80402010u)), 0xf0);
    const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), byte), bit);
    return _mm256_or_si256(level, _mm256_and_si256(_mm256_cmpeq_epi8(own, bit), _mm256_set1_epi8(16)));
  }

  // Transposes the fifth bits of 32 rows as bytes, in the order of transpose_bytes().
  static void transpose_fifths(const uint32_t* fifths, __m256i* column) {
    const __m256i by_byte = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,  //
                                             0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m256i four[4];
    for (int i = 0; i < 4; ++i)
      four[i] = _mm256_shuffle_epi8(_mm256_load_si256(reinterpret_cast<const __m256i*>(fifths + 8 * i)), by_byte);
    const __m256i a = _mm256_unpacklo_epi32(four[0], four[1]), b = _mm256_unpackhi_epi32(four[0], four[1]);
    const __m256i c = _mm256_unpacklo_epi32(four[2], four[3]), d = _mm256_unpackhi_epi32(four[2], four[3]);
    column[0] = _mm256_unpacklo_epi64(a, c);
    column[1] = _mm256_unpackhi_epi64(a, c);
    column[2] = _mm256_unpacklo_epi64(b, d);
    column[3] = _mm256_unpackhi_epi64(b, d);
  }
  // Returns 16 for each byte whose bit `at` is set, otherwise 0.
  [[gnu::always_inline]] static __m256i fifth_of_dim(__m256i column, int at) {
    const __m256i moved = at < 4 ? _mm256_slli_epi16(column, 4 - at) : _mm256_srli_epi16(column, at - 4);
    return _mm256_and_si256(moved, _mm256_set1_epi8(16));
  }
};

}  // namespace
}  // namespace millrace
