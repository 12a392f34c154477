// Looks up the values of levels of a few bits (vector/affine_levels.h) in vectors of AVX-512. Include after
// simd_avx512.h.
#pragma once

#include "kernels/x86/level_bits.h"

namespace millrace {
namespace {

struct LevelTables {
  using F = Simd::F;

  // The values of a group's levels: codes[level] * scale + zero. With 2 bits, the four values are stored four times.
  template <int kBits>
  struct Table {
    static constexpr int kFloats = 16;
    F all;

    Table() = default;
    Table(const float* codes, F scale, F zero)
        : all(Simd::fma(kBits == 2 ? _mm512_broadcast_f32x4(_mm_loadu_ps(codes)) : Simd::load(codes), scale, zero)) {}
    void store(float* to) const { Simd::store(to, all); }
    static Table read(const float* from) {
      Table table;
      table.all = Simd::load(from);
      return table;
    }
    // Looks up the values by the lowest bits of each lane. With 3 bits, the next bit must be 0.
    F at(F index) const { return _mm512_permutexvar_ps(_mm512_castps_si512(index), all); }
  };
  // true: a table is faster than converting and multiplying each level
  template <int kBits>
  static constexpr bool kIsLess = true;

  static F shift_right(F v, int bits) {
    return _mm512_castsi512_ps(_mm512_srli_epi32(_mm512_castps_si512(v), static_cast<unsigned>(bits)));
  }
  // Joins the bits of 3-bit levels in transposed words (AffineRows) to bytes; see join_level_bits().
  static void join_bits(const F* words, F* joined) {
    join_level_bits(words, joined, [](F lanes, int k) {
      const __m512i halves = _mm512_add_epi32(_mm512_set4_epi32(0x000c000c, 0x00080008, 0x00040004, 0),
                                              _mm512_set1_epi32(static_cast<int>(0x80008000) + k * 0x00010001));
      return _mm512_castsi512_ps(_mm512_shuffle_epi8(_mm512_castps_si512(lanes), halves));
    });
  }
  // Returns the levels of a unit as the lowest bits of each lane.
  template <int kBits>
  static void unit_index(const uint8_t* unit, F* index) {
    const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(unit));
    __m512i bits = _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(half, half));
    constexpr int kStep = kBits == 3 ? 8 : kBits;
    if constexpr (kBits == 3) {  // one byte for each level
      const __m512i top =
          _mm512_castps_si512(_mm512_broadcastss_ps(_mm_load_ss(reinterpret_cast<const float*>(unit + 8))));
      const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
      const __m512i third = _mm512_and_si512(_mm512_srlv_epi32(top, lanes), _mm512_set1_epi32(0x01010101));
      bits = _mm512_or_si512(bits, _mm512_slli_epi32(bits, 12));
      bits = _mm512_and_si512(_mm512_or_si512(bits, _mm512_slli_epi32(bits, 6)), _mm512_set1_epi32(0x03030303));
      bits = _mm512_or_si512(bits, _mm512_slli_epi32(third, 2));
    }
    const __m512i upper = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(kStep), 1);
    bits = _mm512_srlv_epi32(bits, upper);
    for (int v = 0; v < (kBits == 4 ? 1 : 2); ++v)
      index[v] = _mm512_castsi512_ps(v == 0 ? bits : _mm512_srli_epi32(bits, 2 * kStep));
  }
};

}  // namespace
}  // namespace millrace
