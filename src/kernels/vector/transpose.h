// Transposes small tiles in 128-bit registers, or in each 128-bit part of wider registers, for the packers. V: Bytes16
// or Bytes64.
#pragma once

namespace millrace {
namespace {

// Transposes four rows of four 4-byte words.
template <typename V, typename Bytes = typename V::Bytes>
inline void transpose_words(const Bytes (&rows)[4], Bytes (&out)[4]) {
  const Bytes low01 = V::low32(rows[0], rows[1]), low23 = V::low32(rows[2], rows[3]);
  const Bytes high01 = V::high32(rows[0], rows[1]), high23 = V::high32(rows[2], rows[3]);
  out[0] = V::low64(low01, low23);
  out[1] = V::high64(low01, low23);
  out[2] = V::low64(high01, high23);
  out[3] = V::high64(high01, high23);
}

// Transposes eight rows of eight 2-byte values.
template <typename V, typename Bytes = typename V::Bytes>
inline void transpose_halves(const Bytes (&rows)[8], Bytes (&out)[8]) {
  Bytes low[4], high[4];                            // bytes of rows 0..3 and 4..7
  auto four = [](const Bytes* r, Bytes* columns) {  // columns 2i and 2i + 1 of four rows in vector i
    const Bytes a = V::low16(r[0], r[1]), b = V::low16(r[2], r[3]);
    const Bytes c = V::high16(r[0], r[1]), d = V::high16(r[2], r[3]);
    columns[0] = V::low32(a, b);
    columns[1] = V::high32(a, b);
    columns[2] = V::low32(c, d);
    columns[3] = V::high32(c, d);
  };
  four(rows, low);
  four(rows + 4, high);
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = V::low64(low[i], high[i]);
    out[2 * i + 1] = V::high64(low[i], high[i]);
  }
}

}  // namespace
}  // namespace millrace
