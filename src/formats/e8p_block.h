// Blocks of E8P (e8p.cc), for the kernels and for quantizers that choose the points themselves. Pure functions.
#pragma once

#include "formats/block.h"
#include "formats/e8p_codebook.h"

namespace millrace {

inline constexpr int kE8pBlockValues = 256;
inline constexpr int kE8pPoints = kE8pBlockValues / kE8pValues;
inline constexpr int kE8pBlockBytes = 2 + 2 * kE8pPoints;
// Type id in GGUF files. ggml has no id for this layout. "MR" in the upper half, so that ggml will never assign it.
inline constexpr int kGgufE8p = 0x4d520001;

// Codes of 4 bits to which the values of a block are unpacked. The low bits are the digit of the magnitude, bit 2 is
// its sign. Bit 3, which the eight values of a point share, says whether 1/4 is subtracted. In quarters:
inline constexpr int8_t kE8pCodes[16] = {3, 7, 11, 0, -1, -5, -9, 0, 1, 5, 9, 0, -3, -7, -11, 0};

void unpack_e8p(const uint8_t* block, uint8_t* levels);  // [256]

// The nearest point of each eight of x[256] under this scale; the squared error.
double round_e8p(const float* x, float scale, uint16_t* codes);

inline void store_e8p(uint16_t d, const uint16_t* codes, uint8_t* block) {
  store_u16(block, d);
  for (int p = 0; p < kE8pPoints; ++p) store_u16(block + 2 + 2 * p, codes[p]);
}

}  // namespace millrace
