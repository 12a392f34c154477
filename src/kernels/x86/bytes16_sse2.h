// 16 bytes in a register of SSE2, which every x86-64 has: what the packers need. arm/bytes16_neon.h has the same.
#pragma once

#include <emmintrin.h>

#include <cstdint>

namespace millrace {
namespace {

using Bytes16 = __m128i;

inline Bytes16 load(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline void store(void* p, Bytes16 v) { _mm_storeu_si128(static_cast<__m128i*>(p), v); }
inline void store_half(void* p, Bytes16 v) { _mm_storel_epi64(static_cast<__m128i*>(p), v); }
inline uint32_t first_word(Bytes16 v) { return static_cast<uint32_t>(_mm_cvtsi128_si32(v)); }
inline Bytes16 set_word(uint32_t word) { return _mm_cvtsi32_si128(static_cast<int>(word)); }  // the others are 0
inline Bytes16 set_bytes(int v) { return _mm_set1_epi8(static_cast<char>(v)); }
inline Bytes16 set_quads(uint64_t v) { return _mm_set1_epi64x(static_cast<long long>(v)); }
inline Bytes16 bits_and(Bytes16 a, Bytes16 b) { return _mm_and_si128(a, b); }
inline Bytes16 bits_or(Bytes16 a, Bytes16 b) { return _mm_or_si128(a, b); }
inline Bytes16 bits_xor(Bytes16 a, Bytes16 b) { return _mm_xor_si128(a, b); }
inline Bytes16 equal_bytes(Bytes16 a, Bytes16 b) { return _mm_cmpeq_epi8(a, b); }
// Shifts of pairs of bytes.
inline Bytes16 shift_right(Bytes16 v, int bits) { return _mm_srli_epi16(v, bits); }
inline Bytes16 shift_left(Bytes16 v, int bits) { return _mm_slli_epi16(v, bits); }
template <int kBytes>
inline Bytes16 without_first(Bytes16 v) {
  return _mm_srli_si128(v, kBytes);
}
// The values of the low or high halves of a and b in turns.
inline Bytes16 low8(Bytes16 a, Bytes16 b) { return _mm_unpacklo_epi8(a, b); }
inline Bytes16 low16(Bytes16 a, Bytes16 b) { return _mm_unpacklo_epi16(a, b); }
inline Bytes16 high16(Bytes16 a, Bytes16 b) { return _mm_unpackhi_epi16(a, b); }
inline Bytes16 low32(Bytes16 a, Bytes16 b) { return _mm_unpacklo_epi32(a, b); }
inline Bytes16 high32(Bytes16 a, Bytes16 b) { return _mm_unpackhi_epi32(a, b); }
inline Bytes16 low64(Bytes16 a, Bytes16 b) { return _mm_unpacklo_epi64(a, b); }
inline Bytes16 high64(Bytes16 a, Bytes16 b) { return _mm_unpackhi_epi64(a, b); }

}  // namespace
}  // namespace millrace
