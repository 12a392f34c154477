// Transpositions of small tiles in 128-bit registers, for the packers.
#pragma once

#if defined(__aarch64__)
#include "kernels/arm/bytes16_neon.h"
#else
#include "kernels/x86/bytes16_sse2.h"
#endif

namespace millrace {
namespace {

// Four rows of four 4-byte words -> four columns.
inline void transpose_words(Bytes16 r0, Bytes16 r1, Bytes16 r2, Bytes16 r3, Bytes16 (&out)[4]) {
  const Bytes16 low01 = low32(r0, r1), low23 = low32(r2, r3);
  const Bytes16 high01 = high32(r0, r1), high23 = high32(r2, r3);
  out[0] = low64(low01, low23);
  out[1] = high64(low01, low23);
  out[2] = low64(high01, high23);
  out[3] = high64(high01, high23);
}

// Eight rows of eight 2-byte values -> eight columns.
inline void transpose_halves(const Bytes16 (&rows)[8], Bytes16 (&out)[8]) {
  Bytes16 low[4], high[4];                              // of rows 0..3 and 4..7
  auto four = [](const Bytes16* r, Bytes16* columns) {  // columns 2i and 2i + 1 of four rows in vector i
    const Bytes16 a = low16(r[0], r[1]), b = low16(r[2], r[3]);
    const Bytes16 c = high16(r[0], r[1]), d = high16(r[2], r[3]);
    columns[0] = low32(a, b);
    columns[1] = high32(a, b);
    columns[2] = low32(c, d);
    columns[3] = high32(c, d);
  };
  four(rows, low);
  four(rows + 4, high);
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = low64(low[i], high[i]);
    out[2 * i + 1] = high64(low[i], high[i]);
  }
}

}  // namespace
}  // namespace millrace
