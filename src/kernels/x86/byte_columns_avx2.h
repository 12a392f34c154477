// Transposes bytes of 32 rows to columns, for AVX2.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace millrace {
namespace {

// Writes bytes 0 to 15 of 32 rows, one vector for each byte. Rows are in an order that becomes ascending when bytes are
// unpacked to words, and words to 32 bits. row(i) returns the address of row i.
template <typename Row>
[[gnu::always_inline]] inline void transpose_bytes(const Row& row, __m256i* column) {
  __m256i other[16];
  for (int64_t i = 0; i < 16; ++i) {
    const int64_t first = i + (i & 12);
    column[i] = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(row(first + 4)),
                                    reinterpret_cast<const __m128i*>(row(first)));
  }
  const auto interleave = [](const __m256i* from, __m256i* to) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      to[2 * i] = _mm256_unpacklo_epi8(from[i], from[i + 8]);
      to[2 * i + 1] = _mm256_unpackhi_epi8(from[i], from[i + 8]);
    }
  };
  interleave(column, other);
  interleave(other, column);
  interleave(column, other);
  interleave(other, column);
}

}  // namespace
}  // namespace millrace
