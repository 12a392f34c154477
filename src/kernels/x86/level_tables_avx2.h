// What levels of a few bits stand for (vector/affine_levels.h), looked up in vectors of AVX2. Include after
// simd_avx2.h.
#pragma once

#include "kernels/x86/level_bits.h"

namespace millrace {
namespace {

struct LevelTables {
  using F = Simd::F;

  // What levels of a group stand for: codes[level] * scale + zero. Of 2 bits, the four codes are there twice.
  template <int kBits>
  struct Table {
    static constexpr int kFloats = kBits == 4 ? 16 : 8;
    F low, high;

    Table() = default;
    Table(const float* codes, F scale, F zero) {
      const F first = kBits == 2 ? _mm256_broadcast_ps(reinterpret_cast<const __m128*>(codes)) : Simd::load(codes);
      low = Simd::fma(first, scale, zero);
      high = kBits == 4 ? Simd::fma(Simd::load(codes + 8), scale, zero) : low;
    }
    void store(float* to) const {
      Simd::store(to, low);
      if constexpr (kBits == 4) Simd::store(to + 8, high);
    }
    static Table read(const float* from) {
      Table table;
      table.low = Simd::load(from);
      table.high = kBits == 4 ? Simd::load(from + 8) : table.low;
      return table;
    }
    // By the lowest bits of each lane.
    F at(F index) const {
      const __m256i bits = _mm256_castps_si256(index);
      const F value = _mm256_permutevar8x32_ps(low, bits);
      if constexpr (kBits < 4) return value;
      return _mm256_blendv_ps(value, _mm256_permutevar8x32_ps(high, bits),
                              _mm256_castsi256_ps(_mm256_slli_epi32(bits, 28)));
    }
  };
  // Whether that is less work than to convert and multiply each level.
  template <int kBits>
  static constexpr bool kIsLess = kBits < 4;

  static F shift_right(F v, int bits) { return _mm256_castsi256_ps(_mm256_srli_epi32(_mm256_castps_si256(v), bits)); }
  // The levels of 3 bits in transposed words (AffineRows), as bytes: join_level_bits().
  static void join_bits(const F* words, F* joined) {
    join_level_bits(words, joined, [](F lanes, int k) {
      const __m256i halves =
          _mm256_add_epi32(_mm256_broadcastsi128_si256(_mm_set_epi32(0x000c000c, 0x00080008, 0x00040004, 0)),
                           _mm256_set1_epi32(static_cast<int>(0x80008000) + k * 0x00010001));
      return _mm256_castsi256_ps(_mm256_shuffle_epi8(_mm256_castps_si256(lanes), halves));
    });
  }
  // The levels of a unit as the lowest bits of each lane.
  template <int kBits>
  static void unit_index(const uint8_t* unit, F* index) {
    __m256i bits = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(unit)));
    constexpr int kStep = kBits == 3 ? 8 : kBits;
    if constexpr (kBits == 3) {  // a byte for each level
      const __m256i top = _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(unit + 8)));
      const __m256i ones = _mm256_set1_epi32(0x01010101), threes = _mm256_set1_epi32(0x03030303);
      const __m256i third = _mm256_and_si256(_mm256_srlv_epi32(top, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), ones);
      bits = _mm256_or_si256(bits, _mm256_slli_epi32(bits, 12));
      bits = _mm256_and_si256(_mm256_or_si256(bits, _mm256_slli_epi32(bits, 6)), threes);
      bits = _mm256_or_si256(bits, _mm256_slli_epi32(third, 2));
    }
    for (int v = 0; v < (kBits == 4 ? 2 : 4); ++v)
      index[v] = _mm256_castsi256_ps(v == 0 ? bits : _mm256_srli_epi32(bits, v * kStep));
  }
};

}  // namespace
}  // namespace millrace
