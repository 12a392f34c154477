// Transpositions of small tiles in 128-bit registers, for the packers. In an unnamed namespace: every file its own.
#pragma once

#include <emmintrin.h>

namespace millrace {
namespace {

// Four rows of four 4-byte words -> four columns.
inline void transpose_words(__m128i r0, __m128i r1, __m128i r2, __m128i r3, __m128i (&out)[4]) {
  const __m128i low01 = _mm_unpacklo_epi32(r0, r1), low23 = _mm_unpacklo_epi32(r2, r3);
  const __m128i high01 = _mm_unpackhi_epi32(r0, r1), high23 = _mm_unpackhi_epi32(r2, r3);
  out[0] = _mm_unpacklo_epi64(low01, low23);
  out[1] = _mm_unpackhi_epi64(low01, low23);
  out[2] = _mm_unpacklo_epi64(high01, high23);
  out[3] = _mm_unpackhi_epi64(high01, high23);
}

// Eight rows of eight 2-byte values -> eight columns.
inline void transpose_halves(const __m128i (&rows)[8], __m128i (&out)[8]) {
  __m128i low[4], high[4];                              // of rows 0..3 and 4..7
  auto four = [](const __m128i* r, __m128i* columns) {  // columns 2i and 2i + 1 of four rows in vector i
    const __m128i a = _mm_unpacklo_epi16(r[0], r[1]), b = _mm_unpacklo_epi16(r[2], r[3]);
    const __m128i c = _mm_unpackhi_epi16(r[0], r[1]), d = _mm_unpackhi_epi16(r[2], r[3]);
    columns[0] = _mm_unpacklo_epi32(a, b);
    columns[1] = _mm_unpackhi_epi32(a, b);
    columns[2] = _mm_unpacklo_epi32(c, d);
    columns[3] = _mm_unpackhi_epi32(c, d);
  };
  four(rows, low);
  four(rows + 4, high);
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = _mm_unpacklo_epi64(low[i], high[i]);
    out[2 * i + 1] = _mm_unpackhi_epi64(low[i], high[i]);
  }
}

}  // namespace
}  // namespace millrace
