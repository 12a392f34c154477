// 16 bytes of each of four rows in a register of AVX-512. It has the operations of bytes16_sse2.h, for each row.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers initialize vectors from undefined ones
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

namespace millrace {
namespace {

struct Bytes64 {
  using Bytes = __m512i;
  static constexpr int kRows = 4;

  static Bytes four_parts(__m128i a, __m128i b, __m128i c, __m128i d) {
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(c), d, 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  // `stride` bytes from one row to the next.
  static Bytes load_rows(const uint8_t* first, int64_t stride) {
    const auto row = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + i * stride)); };
    return four_parts(row(0), row(1), row(2), row(3));
  }
  // Loads four bytes of each row, followed by zeros.
  static Bytes load_words(const uint8_t* first, int64_t stride) {
    const auto row = [&](int i) {
      return _mm_castps_si128(_mm_load_ss(reinterpret_cast<const float*>(first + i * stride)));
    };
    return four_parts(row(0), row(1), row(2), row(3));
  }
  static void store(uint8_t* p, Bytes v) { _mm512_storeu_si512(p, v); }
  static Bytes set_bytes(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
  static Bytes set_quads(uint64_t v) { return _mm512_set1_epi64(static_cast<long long>(v)); }
  static Bytes bits_and(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
  static Bytes bits_or(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
  static Bytes bits_xor(Bytes a, Bytes b) { return _mm512_xor_si512(a, b); }
  static Bytes equal_bytes(Bytes a, Bytes b) { return _mm512_movm_epi8(_mm512_cmpeq_epi8_mask(a, b)); }
  // Shift pairs of bytes (16 bits).
  static Bytes shift_right(Bytes v, int bits) { return _mm512_srli_epi16(v, static_cast<unsigned>(bits)); }
  static Bytes shift_left(Bytes v, int bits) { return _mm512_slli_epi16(v, static_cast<unsigned>(bits)); }
  template <int kBytes>
  static Bytes without_first(Bytes v) {
    return _mm512_bsrli_epi128(v, kBytes);
  }
  // Interleave the values of the low or high halves of a and b.
  static Bytes low8(Bytes a, Bytes b) { return _mm512_unpacklo_epi8(a, b); }
  static Bytes low16(Bytes a, Bytes b) { return _mm512_unpacklo_epi16(a, b); }
  static Bytes high16(Bytes a, Bytes b) { return _mm512_unpackhi_epi16(a, b); }
  static Bytes low32(Bytes a, Bytes b) { return _mm512_unpacklo_epi32(a, b); }
  static Bytes high32(Bytes a, Bytes b) { return _mm512_unpackhi_epi32(a, b); }
  static Bytes low64(Bytes a, Bytes b) { return _mm512_unpacklo_epi64(a, b); }
  static Bytes high64(Bytes a, Bytes b) { return _mm512_unpackhi_epi64(a, b); }
};

}  // namespace
}  // namespace millrace
