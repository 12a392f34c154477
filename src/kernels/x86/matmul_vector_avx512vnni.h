// The operations of the 512-bit quantized matmuls: 16 rows per vector, vpdpbusd with unsigned levels and signed
// activations. Levels are unsigned because an offset is added to them. A dot starts at -offset times the sum of the
// activations, which undoes the offset exactly.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers initialize vectors from undefined ones
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "kernels/vector/matmul_quant.h"
#include "kernels/x86/bytes32_avx2.h"

namespace millrace {
namespace {

struct VectorAvx512 {
  using I = __m512i;
  using F = __m512;
  using Fields = Bytes32;
  static constexpr int kLanes = 16;
  static constexpr int kParts = 2;  // vectors of rows processed together
  static constexpr bool kFewInPlace = true;
  static constexpr int kFewTokens = 10;        // registers with 2 vectors of rows: 20 sums, 2 of levels, 1 broadcast
  static constexpr bool kByMagnitudes = true;  // signed levels: |level| times the activation with the level's sign
  static constexpr bool kPairsColumns = false;
  template <typename Kind>
  static constexpr int kTileTokens = 5;
  static constexpr bool kPrefersSigned = false;
  // If few tokens are multiplied: spreads the prefetches of a group among its dots. Only for Q4_0 and Q4_1. Two threads
  // of a Xeon then read 22.5 GB/s instead of 20.6 while they multiply 8 tokens by Q4_0; Q4_K gains nothing.
  template <int N>
  static constexpr bool kSpreads = kQuantShapes[N].code_bits() == 4 && kQuantShapes[N].low_bits == 4 &&
                                   !kQuantShapes[N].four_of_eight && kQuantShapes[N].sub == SubScales::none
                                   && kQuantShapes[N].table == LevelTable::none;
  // Prefetch distance in bytes for one token of 8-bit levels, which consume a cache line every few cycles. Measured:
  // 36.0 GB/s at 8 KB, 37.0 at 3 to 5 KB, and 37.7 at 3 KB if panels are read in memory order. A plain read had 39.5.
  static constexpr int64_t kPrefetchOne8 = 3072;

  static void keep_here(I& v) { asm volatile("" : "+v"(v)); }
  static I load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static I zero() { return _mm512_setzero_si512(); }
  static F zero_f() { return _mm512_setzero_ps(); }
  static I set1_8(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
  static I set1_16(int v) { return _mm512_set1_epi16(static_cast<short>(v)); }
  static I set1_32(int v) { return _mm512_set1_epi32(v); }
  static I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  static I bit_xor(I a, I b) { return _mm512_xor_si512(a, b); }
  static I or_and(I a, I b, I mask) { return _mm512_ternarylogic_epi32(a, b, mask, 0xf8); }  // a | (b & mask)
  template <int kBits>
  static I shift_right(I v) {  // by a negative count: left
    if constexpr (kBits > 0) return _mm512_srli_epi16(v, kBits);
    if constexpr (kBits < 0) return _mm512_slli_epi16(v, -kBits);
    return v;
  }
  static I shift_left_by(I v, I counts) { return _mm512_sllv_epi32(v, counts); }
  template <int kBits>
  static I shift_left32(I v) {  // by a negative count: right, with the sign
    if constexpr (kBits < 0) return _mm512_srai_epi32(v, -kBits);
    return _mm512_slli_epi32(v, kBits < 0 ? 0 : kBits);
  }
  static I broadcast16(const uint8_t* p) {
    return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I look_up(I table, I codes) { return _mm512_shuffle_epi8(table, codes); }
  // Looks up the code of each byte in which `bits` and `own` have a bit in common; other bytes are those of `other`.
  static I look_up_where(I bits, I own, I table, I codes, I other) {
    return _mm512_mask_shuffle_epi8(other, _mm512_test_epi8_mask(bits, own), table, codes);
  }
  // In every 16 bytes: interleaves the 32-bit words (or pairs of words) of the low or high halves of a and b.
  static I unpack_low32(I a, I b) { return _mm512_unpacklo_epi32(a, b); }
  static I unpack_high32(I a, I b) { return _mm512_unpackhi_epi32(a, b); }
  static I unpack_low64(I a, I b) { return _mm512_unpacklo_epi64(a, b); }
  static I unpack_high64(I a, I b) { return _mm512_unpackhi_epi64(a, b); }
  // In every 16 bytes: the even (odd) 32-bit words of a, then those of b.
  static I even32(I a, I b) { return shuffle_words<0x88>(a, b); }
  static I odd32(I a, I b) { return shuffle_words<0xdd>(a, b); }
  // Loads 8 bytes from each of the addresses at(0) to at(7). Broadcast loads under a mask need no shuffles.
  template <typename At>
  [[gnu::always_inline]] static I load_words(const At& at) {
    using Zero = std::integral_constant<int, 0>;
    I words = _mm512_castsi128_si512(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at(Zero()))));
    unroll<7>([&](auto i) __attribute__((always_inline)) {
      using Next = std::integral_constant<int, i + 1>;
      const __m128i word = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at(Next())));
      words = _mm512_mask_broadcastq_epi64(words, 2 << i, word);
    });
    return words;
  }
  static I add8(I a, I b) { return _mm512_add_epi8(a, b); }
  static I add32(I a, I b) { return _mm512_add_epi32(a, b); }
  static I pairs(I low, I high) { return _mm512_mask_blend_epi16(0xaaaaaaaau, low, _mm512_slli_epi32(high, 16)); }
  static I load_i8(const uint8_t* p) { return _mm512_cvtepi8_epi32(half_load(p)); }
  static I load_u8(const uint8_t* p) { return _mm512_cvtepu8_epi32(half_load(p)); }
  static F load_f16(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load_f32(const uint8_t* p) { return _mm512_loadu_ps(reinterpret_cast<const float*>(p)); }
  static F load_e8m0(const uint8_t* p) {  // see e8m0_half_to_f32
    I e = load_u8(p);
    I normal = _mm512_slli_epi32(_mm512_sub_epi32(e, set1_32(1)), 23);
    I small = _mm512_sllv_epi32(set1_32(0x00200000), e);
    I bits = _mm512_mask_blend_epi32(_mm512_cmplt_epu32_mask(e, set1_32(2)), normal, small);
    bits = _mm512_mask_blend_epi32(_mm512_cmpeq_epi32_mask(e, set1_32(255)), bits, set1_32(0x7fc00000));
    return _mm512_castsi512_ps(bits);
  }
  static F load_e4m3(const uint8_t* p) {  // see e4m3_in_f16
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(half_load(p)), 7));
  }
  static F to_float(I v) { return _mm512_cvtepi32_ps(v); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F negated_fma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static F broadcast_f32(const uint8_t* p) { return _mm512_set1_ps(*reinterpret_cast<const float*>(p)); }
  static I broadcast32(const void* p) { return _mm512_set1_epi32(*static_cast<const int*>(p)); }
  static I dot_pairs(I a, I b) { return _mm512_madd_epi16(a, b); }
  // Adds levels W[kFirst .. kFirst + kCount) of part r times token t to sum[t][r].
  template <typename Kind, int kFirst, int kCount, typename Group, int R, int T>
  [[gnu::always_inline]] static void dot(const Group& group, const uint8_t* const (&row)[T], I (&sum)[T][R]) {
    steps<Group::kSpreads, kCount>([&](auto j) __attribute__((always_inline)) {
      I w[R];
      steps<Group::kSpreads, R>([&](auto r)
                                    __attribute__((always_inline)) { w[r] = group.template level<kFirst>(j, r); });
      repeat<T>([&](int t) __attribute__((always_inline)) {
        I quad = broadcast32(row[t] + 4 * (kFirst + j));
        repeat<R>([&](int r)
                      __attribute__((always_inline)) { sum[t][r] = _mm512_dpbusd_epi32(sum[t][r], w[r], quad); });
      });
    });
  }
  static void store_past(float* y, F v) { _mm512_stream_ps(y, v); }  // streaming store; unordered until fence()
  static void fence() { _mm_sfence(); }
  static void store(float* y, F v, int64_t count) {
    if (count >= kLanes) {
      _mm512_storeu_ps(y, v);
    } else {
      _mm512_mask_storeu_ps(y, first_lanes(count), v);
    }
  }

 private:
  template <int kWhich>
  static I shuffle_words(I a, I b) {
    return _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), kWhich));
  }
  static __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
  static __m128i half_load(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
};

}  // namespace
}  // namespace millrace
