// 16 bytes in a register of SSE2, which every x86-64 has: the operations that the packers need. arm/bytes16_neon.h has
// them for Arm, and bytes64_avx512.h for 16 bytes of each of four rows.
#pragma once

#include <emmintrin.h>

#include <cstdint>

namespace millrace {
namespace {

struct Bytes16 {
  using Bytes = __m128i;

  static constexpr int kRows = 1;

  static Bytes load_rows(const uint8_t* first, int64_t /*stride*/) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(first));
  }
  // Loads four bytes of a row, followed by zeros.
  static Bytes load_words(const uint8_t* first, int64_t /*stride*/) {
    return _mm_castps_si128(_mm_load_ss(reinterpret_cast<const float*>(first)));
  }
  static void store(uint8_t* p, Bytes v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }
  static Bytes set_bytes(int v) { return _mm_set1_epi8(static_cast<char>(v)); }
  static Bytes set_quads(uint64_t v) { return _mm_set1_epi64x(static_cast<long long>(v)); }
  static Bytes bits_and(Bytes a, Bytes b) { return _mm_and_si128(a, b); }
  static Bytes bits_or(Bytes a, Bytes b) { return _mm_or_si128(a, b); }
  static Bytes bits_xor(Bytes a, Bytes b) { return _mm_xor_si128(a, b); }
  static Bytes equal_bytes(Bytes a, Bytes b) { return _mm_cmpeq_epi8(a, b); }
  // Shift pairs of bytes (16 bits).
  static Bytes shift_right(Bytes v, int bits) { return _mm_srli_epi16(v, bits); }
  static Bytes shift_left(Bytes v, int bits) { return _mm_slli_epi16(v, bits); }
  template <int kBytes>
  static Bytes without_first(Bytes v) {
    return _mm_srli_si128(v, kBytes);
  }
  // Interleave the values of the low or high halves of a and b.
  static Bytes low8(Bytes a, Bytes b) { return _mm_unpacklo_epi8(a, b); }
  static Bytes low16(Bytes a, Bytes b) { return _mm_unpacklo_epi16(a, b); }
  static Bytes high16(Bytes a, Bytes b) { return _mm_unpackhi_epi16(a, b); }
  static Bytes low32(Bytes a, Bytes b) { return _mm_unpacklo_epi32(a, b); }
  static Bytes high32(Bytes a, Bytes b) { return _mm_unpackhi_epi32(a, b); }
  static Bytes low64(Bytes a, Bytes b) { return _mm_unpacklo_epi64(a, b); }
  static Bytes high64(Bytes a, Bytes b) { return _mm_unpackhi_epi64(a, b); }
};

}  // namespace
}  // namespace millrace
