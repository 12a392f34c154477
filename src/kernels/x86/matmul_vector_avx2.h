// The operations of the 256-bit quantized matmuls, except the products.
#pragma once

#include <immintrin.h>

#include "kernels/vector/matmul_quant.h"
#include "kernels/x86/bytes32_avx2.h"

namespace millrace {
namespace {

struct Avx2Operations {
  using I = __m256i;
  using F = __m256;
  using Fields = Bytes32;
  static constexpr int kLanes = 8;
  static constexpr int kParts = 2;  // vectors of rows processed together
  static constexpr bool kFewInPlace = true;
  static constexpr int kFewTokens = 0;
  template <int N>
  static constexpr bool kSpreads = false;
  static constexpr bool kByMagnitudes = true;  // signed levels: |level| times the activation with the level's sign
  static constexpr bool kPairsColumns = false;
  static I abs8(I v) { return _mm256_abs_epi8(v); }
  // Forces the value into a register.
  static I kept(I v) {
    asm("" : "+x"(v));
    return v;
  }
  static void keep_here(I& v) { asm volatile("" : "+v"(v)); }
  static I load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static I zero() { return _mm256_setzero_si256(); }
  static F zero_f() { return _mm256_setzero_ps(); }
  static I set1_8(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
  static I set1_16(int v) { return _mm256_set1_epi16(static_cast<short>(v)); }
  static I set1_32(int v) { return _mm256_set1_epi32(v); }
  static I bit_and(I a, I b) { return _mm256_and_si256(a, b); }
  static I bit_xor(I a, I b) { return _mm256_xor_si256(a, b); }
  static I or_and(I a, I b, I mask) { return _mm256_or_si256(a, _mm256_and_si256(b, mask)); }
  template <int kBits>
  static I shift_right(I v) {  // by a negative count: left
    if constexpr (kBits > 0) return _mm256_srli_epi16(v, kBits);
    if constexpr (kBits < 0) return _mm256_slli_epi16(v, -kBits);
    return v;
  }
  static I shift_left_by(I v, I counts) { return _mm256_sllv_epi32(v, counts); }
  template <int kBits>
  static I shift_left32(I v) {  // by a negative count: right, with the sign
    return kBits < 0 ? _mm256_srai_epi32(v, -kBits) : _mm256_slli_epi32(v, kBits);
  }
  static I broadcast16(const uint8_t* p) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I look_up(I table, I codes) { return _mm256_shuffle_epi8(table, codes); }
  // Looks up the code of each byte in which `bits` has the bit of `own`; other bytes are those of `other`.
  static I look_up_where(I bits, I own, I table, I codes, I other) {
    return _mm256_blendv_epi8(other, look_up(table, codes), _mm256_cmpeq_epi8(_mm256_and_si256(bits, own), own));
  }
  // In every 16 bytes: interleaves the 32-bit words (or pairs of words) of the low or high halves of a and b.
  static I unpack_low32(I a, I b) { return _mm256_unpacklo_epi32(a, b); }
  static I unpack_high32(I a, I b) { return _mm256_unpackhi_epi32(a, b); }
  static I unpack_low64(I a, I b) { return _mm256_unpacklo_epi64(a, b); }
  static I unpack_high64(I a, I b) { return _mm256_unpackhi_epi64(a, b); }
  // In every 16 bytes: the even (odd) 32-bit words of a, then those of b.
  static I even32(I a, I b) { return shuffle_words<0x88>(a, b); }
  static I odd32(I a, I b) { return shuffle_words<0xdd>(a, b); }
  // Loads 8 bytes from each of the addresses at(0) to at(3).
  template <typename At>
  [[gnu::always_inline]] static I load_words(const At& at) {
    using Zero = std::integral_constant<int, 0>;
    I words = _mm256_castsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at(Zero()))));
    unroll<3>([&](auto i) __attribute__((always_inline)) {
      using Next = std::integral_constant<int, i + 1>;
      const I word = _mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at(Next()))));
      words = _mm256_blend_epi32(words, word, 3 << 2 * (i + 1));
    });
    return words;
  }
  static I add8(I a, I b) { return _mm256_add_epi8(a, b); }
  static I add32(I a, I b) { return _mm256_add_epi32(a, b); }
  static I pairs(I low, I high) { return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa); }
  static I load_i8(const uint8_t* p) { return _mm256_cvtepi8_epi32(quarter_load(p)); }
  static I load_u8(const uint8_t* p) { return _mm256_cvtepu8_epi32(quarter_load(p)); }
  static F load_f16(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static F load_f32(const uint8_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
  static F load_e8m0(const uint8_t* p) {  // see e8m0_half_to_f32
    I e = load_u8(p);
    I normal = _mm256_slli_epi32(_mm256_sub_epi32(e, set1_32(1)), 23);
    I small = _mm256_sllv_epi32(set1_32(0x00200000), e);
    I bits = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(set1_32(2), e));
    bits = _mm256_blendv_epi8(bits, set1_32(0x7fc00000), _mm256_cmpeq_epi32(e, set1_32(255)));
    return _mm256_castsi256_ps(bits);
  }
  static F load_e4m3(const uint8_t* p) {  // see e4m3_in_f16
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(quarter_load(p)), 7));
  }
  static F to_float(I v) { return _mm256_cvtepi32_ps(v); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F negated_fma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  static F broadcast_f32(const uint8_t* p) { return _mm256_set1_ps(*reinterpret_cast<const float*>(p)); }
  static I broadcast32(const void* p) { return _mm256_set1_epi32(*static_cast<const int*>(p)); }
  static I dot_pairs(I a, I b) { return _mm256_madd_epi16(a, b); }

  static void store_past(float* y, F v) { _mm256_stream_ps(y, v); }  // streaming store; unordered until fence()
  static void fence() { _mm_sfence(); }
  static void store(float* y, F v, int64_t count) {
    if (count >= kLanes) {
      _mm256_storeu_ps(y, v);
    } else {
      _mm256_maskstore_ps(y, first_lanes(count), v);
    }
  }

 private:
  template <int kWhich>
  static I shuffle_words(I a, I b) {
    return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), kWhich));
  }
  static I first_lanes(int64_t count) {
    return _mm256_cmpgt_epi32(set1_32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m128i quarter_load(const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
};

}  // namespace
}  // namespace millrace
