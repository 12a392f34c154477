// The vector operations that the shared kernel sources use, for AVX2 with FMA and F16C: 8 lanes of f32. Only *_avx2.cc
// may include this. Everything is in an unnamed namespace, so that no code compiled with these flags can be linked into
// another file. simd_avx512.h has the same operations with 16 lanes.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace millrace {
namespace {

struct Simd {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRows = 4;     // query rows per pass of the attention kernels (16 registers)
  static constexpr int kVectors = 2;  // vectors of a value row per pass

  static __m256i tail(int64_t n) {
    alignas(32) static constexpr int32_t kMask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask + 8 - n));
  }

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  // N < kLanes; the other lanes are 0.
  static F load_n(const float* p, int64_t n) { return _mm256_maskload_ps(p, tail(n)); }
  static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static void store_n(float* p, F v, int64_t n) { _mm256_maskstore_ps(p, tail(n), v); }
  // Not the intrinsic: GCC treats a function that only prefetches as pure and drops calls of it.
  static void prefetch(const uint8_t* p) { asm volatile("prefetcht0 %0" : : "m"(*p)); }
  static float first(F v) { return _mm256_cvtss_f32(v); }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }    // a * b + c
  static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a * b
  static F max(F a, F b) { return _mm256_max_ps(a, b); }              // b if a or b is NaN
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static F copy_sign(F magnitude, F sign) {
    return _mm256_or_ps(magnitude, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
  }
  static F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F if_less(F a, F b, F yes, F no) {  // a < b ? yes : no
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static F zero_nan(F a) { return _mm256_and_ps(a, _mm256_cmp_ps(a, a, _CMP_ORD_Q)); }
  static bool any_nan(F a) { return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0; }

  // power_of_two() returns 2^n for integral n in [-126, 127]; half_floor() returns floor(n / 2).
  static F power_of_two(F n) {
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
  }
  static F half_floor(F n) { return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_cvtps_epi32(n), 1)); }

  // Reductions have a fixed order: lanes i and i + 4, then i + 2, then i + 1.
  static float sum(F v) {
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
  }
  static float largest(F v) {
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
  }

  // Load kLanes values from p.
  static F load_f16(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static F load_bf16(const uint8_t* p) {
    __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static F load_i8(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // Returns in lane i the value kLanes * part + i of a unit of 8 bytes of levels (AffineRows), as f32.
  template <int kBits>
  static F levels(const uint8_t* unit, int part) {
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(unit)));
    const __m256i low = _mm256_srli_epi32(bytes, part * kBits);
    return _mm256_cvtepi32_ps(_mm256_and_si256(low, _mm256_set1_epi32((1 << kBits) - 1)));
  }
  static float from_f16(int bits) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))); }
  static float f16(const uint8_t* p) { return from_f16(p[0] | p[1] << 8); }
  static uint16_t to_f16(float x) {
    const __m128i half = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return static_cast<uint16_t>(_mm_cvtsi128_si32(half) & 0xffff);
  }
  static void store_f16(uint8_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void store_bf16(uint8_t* p, F v) {  // v finite
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
  }
  static void store_i8(uint8_t* p, F v) {  // rounded to nearest even; v within [-128, 127]
    __m256i wide = _mm256_cvtps_epi32(v);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }

  // Transposes four 32-bit words at byte `offset` of each of 8 rows: lane r of out[c] is word c of row r.
  static void transpose_words(const uint8_t* const* rows, int64_t offset, F* out) {
    const auto words = [&](int r) { return _mm_loadu_ps(reinterpret_cast<const float*>(rows[r] + offset)); };
    F row[4];
    for (int j = 0; j < 4; ++j) {  // 128-bit lane l holds row 4 l + j
      row[j] = _mm256_insertf128_ps(_mm256_castps128_ps256(words(j)), words(4 + j), 1);
    }
    const F a = _mm256_unpacklo_ps(row[0], row[1]);
    const F b = _mm256_unpackhi_ps(row[0], row[1]);
    const F c = _mm256_unpacklo_ps(row[2], row[3]);
    const F d = _mm256_unpackhi_ps(row[2], row[3]);
    out[0] = _mm256_shuffle_ps(a, c, 0x44);
    out[1] = _mm256_shuffle_ps(a, c, 0xee);
    out[2] = _mm256_shuffle_ps(b, d, 0x44);
    out[3] = _mm256_shuffle_ps(b, d, 0xee);
  }

  // Return a part of each 32-bit lane as f32: one of its two f16 or bf16 (part 0 is the lower one), or of its four
  // int8.
  static F f16_part(F v, int part) {
    __m256i bits = _mm256_castps_si256(v);
    bits = part ? _mm256_srli_epi32(bits, 16) : _mm256_and_si256(bits, _mm256_set1_epi32(0xffff));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
  }
  static F bf16_part(F v, int part) {
    const __m256i bits = _mm256_castps_si256(v);
    return _mm256_castsi256_ps(part ? _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0xffff0000u)))
                                    : _mm256_slli_epi32(bits, 16));
  }
  static F i8_part(F v, int part) {
    const __m256i top = _mm256_slli_epi32(_mm256_castps_si256(v), 24 - 8 * part);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 24));
  }

  // Return levels of packed formats as f32. load_nibbles(): the low (shift 0) or high (shift 4) nibbles of kLanes bytes
  // from p on. bits_at(): kBits bits of each 32-bit lane, from bit `at` on. spread_bits(): bit `first` + i of `word` in
  // lane i.
  static F load_nibbles(const uint8_t* p, int shift) {
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(bytes, shift), _mm256_set1_epi32(15)));
  }
  template <int kBits>
  static F bits_at(F v, int at) {
    const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(v), at);
    return _mm256_cvtepi32_ps(_mm256_and_si256(low, _mm256_set1_epi32((1 << kBits) - 1)));
  }
  static F spread_bits(uint32_t word, int first) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(word >> first)), lanes);
    return _mm256_cvtepi32_ps(_mm256_and_si256(low, _mm256_set1_epi32(1)));
  }
  // Returns codes[level] for levels that are f32.
  template <int kBits>
  static F look_up(const float* codes, F level) {
    const __m256i at = _mm256_cvtps_epi32(level);
    const F low = _mm256_permutevar8x32_ps(load(codes), at);
    if constexpr (kBits <= 3) return low;
    const F high = _mm256_permutevar8x32_ps(load(codes + 8), at);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
  }
  // Variant for levels that are bits of each lane of `low`, from bit `at` on. With 3 bits, the highest bit is bit
  // `top_at` of `top`.
  template <int kBits>
  static F look_up_bits(const float* codes, F low, int at, F top, int top_at) {
    const __m256i bits = _mm256_srli_epi32(_mm256_castps_si256(low), at);
    if constexpr (kBits == 3) {
      const __m256i tops = _mm256_castps_si256(top);
      return look_up_index<kBits>(
          codes, bits, top_at < 2 ? _mm256_slli_epi32(tops, 2 - top_at) : _mm256_srli_epi32(tops, top_at - 2));
    }
    return look_up_index<kBits>(codes, bits, bits);
  }
  // Variant that loads a unit's levels, like levels(); also for levels of 3 bits (AffineRows).
  template <int kBits>
  static F look_up_unit(const float* codes, const uint8_t* unit, int part) {
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(unit)));
    const __m256i bits = _mm256_srli_epi32(bytes, part * (kBits == 4 ? 4 : 2));
    if constexpr (kBits == 3) {
      const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
      return look_up_index<kBits>(codes, bits, _mm256_srlv_epi32(_mm256_set1_epi32(unit[8 + part] << 2), lanes));
    }
    return look_up_index<kBits>(codes, bits, bits);
  }
  // Read finite 8-bit floats with 4 exponent bits, times 2^-8. An f16 with the same bits has this value, because its
  // exponent is one bit longer. load_f8() reads kLanes values from p. f8_halves() returns the even or odd bytes of each
  // lane as two f16, for f16_part(). An arithmetic shift repeats the sign and moves the other bits to their places.
  static constexpr int16_t kF8InF16 = static_cast<int16_t>(0xbf80);
  static F load_f8(const uint8_t* p) {
    const __m128i top = _mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))), 8);
    return _mm256_cvtph_ps(_mm_and_si128(_mm_srai_epi16(top, 1), _mm_set1_epi16(kF8InF16)));
  }
  static F f8_halves(F v, bool odd) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i top = odd ? bits : _mm256_slli_epi16(bits, 8);
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_srai_epi16(top, 1), _mm256_set1_epi16(kF8InF16)));
  }

  // For RoPE on neighbouring dims: split_pairs() splits a, b, which have x0 y0 x1 y1 ..., into x and y; join_pairs() is
  // its inverse.
  static void split_pairs(F a, F b, F& x, F& y) {
    __m256 low = _mm256_permute2f128_ps(a, b, 0x20);
    __m256 high = _mm256_permute2f128_ps(a, b, 0x31);
    x = _mm256_shuffle_ps(low, high, 0x88);
    y = _mm256_shuffle_ps(low, high, 0xdd);
  }
  static void join_pairs(F x, F y, F& a, F& b) {
    __m256 low = _mm256_unpacklo_ps(x, y);
    __m256 high = _mm256_unpackhi_ps(x, y);
    a = _mm256_permute2f128_ps(low, high, 0x20);
    b = _mm256_permute2f128_ps(low, high, 0x31);
  }

 private:
  // Looks up codes by the lowest bits of `bits`; with 3 bits, bit 2 is read from `top`.
  template <int kBits>
  static F look_up_index(const float* codes, __m256i bits, __m256i top) {
    if constexpr (kBits == 4) {
      const F low = _mm256_permutevar8x32_ps(load(codes), bits), high = _mm256_permutevar8x32_ps(load(codes + 8), bits);
      return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 28)));
    }
    __m256i index = _mm256_and_si256(bits, _mm256_set1_epi32(3));
    if constexpr (kBits == 3) index = _mm256_or_si256(index, _mm256_and_si256(top, _mm256_set1_epi32(4)));
    return _mm256_permutevar8x32_ps(load(codes), index);
  }
};

}  // namespace
}  // namespace millrace
