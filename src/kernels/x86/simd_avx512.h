// The vector operations that the shared kernel sources use, for AVX-512: 16 lanes of f32. Only *_avx512.cc may include
// this. Everything is in an unnamed namespace, so that no code compiled with these flags can be linked into another
// file. simd_avx2.h has the same operations with 8 lanes.
#pragma once

// GCC 12 warns about the deliberately undefined operands in its own intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

namespace millrace {
namespace {

struct Simd {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRows = 6;     // query rows per pass of the attention kernels (32 registers)
  static constexpr int kVectors = 4;  // vectors of a value row per pass

  static __mmask16 tail(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  // N < kLanes; the other lanes are 0.
  static F load_n(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(tail(n), p); }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static void store_n(float* p, F v, int64_t n) { _mm512_mask_storeu_ps(p, tail(n), v); }
  // Not the intrinsic: GCC treats a function that only prefetches as pure and drops calls of it.
  static void prefetch(const uint8_t* p) { asm volatile("prefetcht0 %0" : : "m"(*p)); }
  static float first(F v) { return _mm512_cvtss_f32(v); }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }    // a * b + c
  static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a * b
  static F max(F a, F b) { return _mm512_max_ps(a, b); }              // b if a or b is NaN
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F copy_sign(F magnitude, F sign) {
    return _mm512_or_ps(magnitude, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
  }
  static F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F if_less(F a, F b, F yes, F no) {  // a < b ? yes : no
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  // Returns a with each NaN replaced by 0.
  static F zero_nan(F a) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), a); }
  static bool any_nan(F a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }

  // power_of_two() returns 2^n for integral n in [-126, 127]; half_floor() returns floor(n / 2).
  static F power_of_two(F n) {
    __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
  }
  static F half_floor(F n) { return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_cvtps_epi32(n), 1)); }

  // Reductions have a fixed order: lanes i and i + 8, then i + 4, i + 2 and i + 1.
  static float sum(F v) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
  }
  static float largest(F v) {
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
  }

  // Load kLanes values from p.
  static F load_f16(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load_bf16(const uint8_t* p) {
    __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static F load_i8(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  // Returns in lane i the value kLanes * part + i of a unit of 8 bytes of levels (AffineRows), as f32.
  template <int kBits>
  static F levels(const uint8_t* unit, int part) {
    const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(unit));
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(half, half));
    const int shift = 2 * part * kBits, next = shift + kBits;
    const __m512i low =
        _mm512_srlv_epi32(bytes, _mm512_setr_epi32(shift, shift, shift, shift, shift, shift, shift, shift, next, next,
                                                   next, next, next, next, next, next));
    return _mm512_cvtepi32_ps(_mm512_and_si512(low, _mm512_set1_epi32((1 << kBits) - 1)));
  }
  static float from_f16(int bits) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))); }
  static float f16(const uint8_t* p) { return from_f16(p[0] | p[1] << 8); }
  static uint16_t to_f16(float x) {
    const __m128i half = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return static_cast<uint16_t>(_mm_cvtsi128_si32(half) & 0xffff);
  }
  static void store_f16(uint8_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void store_bf16(uint8_t* p, F v) {  // v finite
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
  }
  static void store_i8(uint8_t* p, F v) {  // rounded to nearest even; v within [-128, 127]
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
  }

  // Transposes four 32-bit words at byte `offset` of each of 16 rows: lane r of out[c] is word c of row r.
  static void transpose_words(const uint8_t* const* rows, int64_t offset, F* out) {
    const auto words = [&](int r) { return _mm_loadu_ps(reinterpret_cast<const float*>(rows[r] + offset)); };
    F row[4];
    for (int j = 0; j < 4; ++j) {  // 128-bit lane l holds row 4 l + j
      F v = _mm512_castps128_ps512(words(j));
      v = _mm512_mask_broadcast_f32x4(v, 0x00f0, words(4 + j));
      v = _mm512_mask_broadcast_f32x4(v, 0x0f00, words(8 + j));
      row[j] = _mm512_mask_broadcast_f32x4(v, 0xf000, words(12 + j));
    }
    const F a = _mm512_unpacklo_ps(row[0], row[1]);
    const F b = _mm512_unpackhi_ps(row[0], row[1]);
    const F c = _mm512_unpacklo_ps(row[2], row[3]);
    const F d = _mm512_unpackhi_ps(row[2], row[3]);
    out[0] = _mm512_shuffle_ps(a, c, 0x44);
    out[1] = _mm512_shuffle_ps(a, c, 0xee);
    out[2] = _mm512_shuffle_ps(b, d, 0x44);
    out[3] = _mm512_shuffle_ps(b, d, 0xee);
  }

  // Return a part of each 32-bit lane as f32: one of its two f16 or bf16 (part 0 is the lower one), or of its four
  // int8.
  static F f16_part(F v, int part) {
    const __m512i bits = _mm512_castps_si512(v);
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(part ? _mm512_srli_epi32(bits, 16) : bits));
  }
  static F bf16_part(F v, int part) {
    const __m512i bits = _mm512_castps_si512(v);
    return _mm512_castsi512_ps(part ? _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u)))
                                    : _mm512_slli_epi32(bits, 16));
  }
  static F i8_part(F v, int part) {
    const __m512i top = _mm512_slli_epi32(_mm512_castps_si512(v), static_cast<unsigned>(24 - 8 * part));
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24));
  }

  // Return levels of packed formats as f32. load_nibbles(): the low (shift 0) or high (shift 4) nibbles of kLanes bytes
  // from p on. bits_at(): kBits bits of each 32-bit lane, from bit `at` on. spread_bits(): bit `first` + i of `word` in
  // lane i.
  static F load_nibbles(const uint8_t* p, int shift) {
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512i low = _mm512_srli_epi32(bytes, static_cast<unsigned>(shift));
    return _mm512_cvtepi32_ps(_mm512_and_si512(low, _mm512_set1_epi32(15)));
  }
  template <int kBits>
  static F bits_at(F v, int at) {
    const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(v), static_cast<unsigned>(at));
    return _mm512_cvtepi32_ps(_mm512_and_si512(low, _mm512_set1_epi32((1 << kBits) - 1)));
  }
  static F spread_bits(uint32_t word, int first) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i low = _mm512_srlv_epi32(_mm512_set1_epi32(static_cast<int>(word >> first)), lanes);
    return _mm512_cvtepi32_ps(_mm512_and_si512(low, _mm512_set1_epi32(1)));
  }
  // Returns codes[level] for levels that are f32.
  template <int kBits>
  static F look_up(const float* codes, F level) {
    return _mm512_permutexvar_ps(_mm512_cvtps_epi32(level), load(codes));
  }
  // Read finite 8-bit floats with 4 exponent bits, times 2^-8. An f16 with the same bits has this value, because its
  // exponent is one bit longer. load_f8() reads kLanes values from p. f8_halves() returns the even or odd bytes of each
  // lane as two f16, for f16_part().
  static F load_f8(const uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i top = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
    const __m256i sign = _mm256_set1_epi16(static_cast<int16_t>(0x8000));
    const __m256i size = _mm256_srli_epi16(_mm256_andnot_si256(sign, top), 1);
    return _mm512_cvtph_ps(_mm256_or_si256(_mm256_and_si256(sign, top), size));
  }
  static F f8_halves(F v, bool odd) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i top = odd ? bits : _mm512_slli_epi16(bits, 8);
    const __m512i size = _mm512_and_si512(_mm512_srli_epi16(top, 1), _mm512_set1_epi16(0x3f80));
    const __m512i sign = _mm512_and_si512(top, _mm512_set1_epi16(static_cast<int16_t>(0x8000)));
    return _mm512_castsi512_ps(_mm512_or_si512(sign, size));
  }

  // For RoPE on neighbouring dims: split_pairs() splits a, b, which have x0 y0 x1 y1 ..., into x and y; join_pairs() is
  // its inverse.
  static void split_pairs(F a, F b, F& x, F& y) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    x = _mm512_permutex2var_ps(a, even, b);
    y = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
  }
  static void join_pairs(F x, F y, F& a, F& b) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    a = _mm512_permutex2var_ps(x, low, y);
    b = _mm512_permutex2var_ps(x, _mm512_add_epi32(low, _mm512_set1_epi32(8)), y);
  }
};

}  // namespace
}  // namespace millrace
