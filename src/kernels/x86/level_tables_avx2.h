// Looks up the values of levels of a few bits (vector/affine_levels.h) in vectors of AVX2. Include after simd_avx2.h.
#pragma once

#include "kernels/x86/level_bits.h"

namespace millrace {
namespace {

struct LevelTables {
  using F = Simd::F;

  // The values of a group's levels: codes[level] * scale + zero. With 2 bits, the four values are stored twice.
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
    // Looks up the values by the lowest bits of each lane.
    F at(F index) const {
      const __m256i bits = _mm256_castps_si256(index);
      const F value = _mm256_permutevar8x32_ps(low, bits);
      if constexpr (kBits < 4) return value;
      return _mm256_blendv_ps(value, _mm256_permutevar8x32_ps(high, bits),
                              _mm256_castsi256_ps(_mm256_slli_epi32(bits, 28)));
    }
  };
  // The values of 16 levels as the bytes of floats. A shuffle looks up each byte, for 32 values at a time.
  class ByteTable {
   public:
    static constexpr int64_t kValues = 32, kBytes = 16;
    explicit ByteTable(const float* codes) {
      const __m256i by_byte =
          _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
      const auto four = [&](int i) {
        return _mm256_shuffle_epi8(
            _mm256_castps_si256(_mm256_broadcast_ps(reinterpret_cast<const __m128*>(codes + 4 * i))), by_byte);
      };
      const __m256i a = _mm256_unpacklo_epi32(four(0), four(1)), b = _mm256_unpackhi_epi32(four(0), four(1));
      const __m256i c = _mm256_unpacklo_epi32(four(2), four(3)), d = _mm256_unpackhi_epi32(four(2), four(3));
      bytes_[0] = _mm256_unpacklo_epi64(a, c);
      bytes_[1] = _mm256_unpackhi_epi64(a, c);
      bytes_[2] = _mm256_unpacklo_epi64(b, d);
      bytes_[3] = _mm256_unpackhi_epi64(b, d);
    }
    // Decodes two units of 4-bit levels, from `units` on.
    [[gnu::always_inline]] void decode(const uint8_t* units, F scale, F zero, float* out) const {
      // For each half: the order of values that becomes ascending when they are unpacked twice.
      const __m256i order = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 8, 9, 10, 11, 8, 9, 10, 11,  //
                                             4, 5, 6, 7, 4, 5, 6, 7, 12, 13, 14, 15, 12, 13, 14, 15);
      const __m256i pairs = _mm256_shuffle_epi8(
          _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(units))), order);
      const __m256i level =
          _mm256_and_si256(_mm256_srlv_epi32(pairs, _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4)), _mm256_set1_epi8(15));
      __m256i byte[4];
      for (int i = 0; i < 4; ++i) byte[i] = _mm256_shuffle_epi8(bytes_[i], level);
      const __m256i low = _mm256_unpacklo_epi8(byte[0], byte[1]), top = _mm256_unpacklo_epi8(byte[2], byte[3]);
      const __m256i other = _mm256_unpackhi_epi8(byte[0], byte[1]), tops = _mm256_unpackhi_epi8(byte[2], byte[3]);
      const auto put = [&](int64_t at, __m256i code) {
        Simd::store(out + at, Simd::fma(_mm256_castsi256_ps(code), scale, zero));
      };
      put(0, _mm256_unpacklo_epi16(low, top));
      put(8, _mm256_unpackhi_epi16(low, top));
      put(16, _mm256_unpacklo_epi16(other, tops));
      put(24, _mm256_unpackhi_epi16(other, tops));
    }

   private:
    __m256i bytes_[4];
  };

  // true: a table is faster than converting and multiplying each level
  template <int kBits>
  static constexpr bool kIsLess = kBits < 4;

  static F shift_right(F v, int bits) { return _mm256_castsi256_ps(_mm256_srli_epi32(_mm256_castps_si256(v), bits)); }
  // Joins the bits of 3-bit levels in transposed words (AffineRows) to bytes; see join_level_bits().
  static void join_bits(const F* words, F* joined) {
    join_level_bits(words, joined, [](F lanes, int k) {
      const __m256i halves =
          _mm256_add_epi32(_mm256_broadcastsi128_si256(_mm_set_epi32(0x000c000c, 0x00080008, 0x00040004, 0)),
                           _mm256_set1_epi32(static_cast<int>(0x80008000) + k * 0x00010001));
      return _mm256_castsi256_ps(_mm256_shuffle_epi8(_mm256_castps_si256(lanes), halves));
    });
  }
  // Returns the levels of a unit as the lowest bits of each lane.
  template <int kBits>
  static void unit_index(const uint8_t* unit, F* index) {
    __m256i bits = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(unit)));
    constexpr int kStep = kBits == 3 ? 8 : kBits;
    if constexpr (kBits == 3) {  // one byte for each level
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
